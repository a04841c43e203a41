"""A service whose threads have something else to do."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager

from serving import Serving


@contextmanager
def busy(service: Serving) -> Iterator[None]:
    """Its one decode thread is taken, and that of texts: what is given to them waits."""
    assert service.runtime.settings.decode_threads == 1
    with taken(service.runtime.pools.decode), taken(service.runtime.pools.text):
        yield


@contextmanager
def computing(service: Serving) -> Iterator[None]:
    """Its one worker is taken: the next batch waits for it, and all others who ask wait in the queue."""
    assert service.runtime.settings.workers == 1
    with taken(service.runtime.pools.forwards):
        yield


@contextmanager
def taken(pool: Executor) -> Iterator[None]:
    """Its one thread is taken, and what is given to it waits."""
    free = threading.Event()
    pool.submit(free.wait)
    try:
        yield
    finally:
        free.set()
