"""A queue in which there is no place, without a model that is busy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from serving import Serving


@contextmanager
def taken(service: Serving, places: int, *tasks: str) -> Iterator[None]:
    """So many places of the queue are taken by these tasks; by all, so that none has a place beyond those, unless they
    are named."""
    holders = tasks or [entry.name for entry in service.runtime.catalog.entries.all()]
    admission = service.runtime.batcher.admit(places, holders)
    service.on_loop(admission.__enter__)
    try:
        yield
    finally:
        service.on_loop(lambda: admission.__exit__(None, None, None))


@contextmanager
def full(service: Serving) -> Iterator[Serving]:
    """The queue has no place left."""
    with taken(service, service.runtime.settings.max_queue):
        yield service
