"""A queue in which there is no place, without a model that is busy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from serving import Serving

from service.errors import OverloadedError


@contextmanager
def taken(service: Serving, places: int, *tasks: str) -> Iterator[None]:
    """So many places of the queue are taken by these tasks; by all, so that none has a place beyond those, unless they
    are named. Waits until there are so many: a request that a test before this one gave up may still have some."""
    holders = tasks or [entry.name for entry in service.runtime.catalog.entries.all()]
    held = ExitStack()

    def take() -> bool:
        try:
            held.enter_context(service.runtime.batcher.admit(places, holders))
        except OverloadedError:
            return False
        return True

    service.until(lambda: service.on_loop(take))
    try:
        yield
    finally:
        service.on_loop(held.close)


@contextmanager
def full(service: Serving) -> Iterator[Serving]:
    """The queue has no place left."""
    with taken(service, service.runtime.settings.max_queue):
        yield service
