"""A service whose decode threads have something else to do."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from serving import Serving


@contextmanager
def busy(service: Serving) -> Iterator[None]:
    """Its one decode thread is taken, and what is given to it waits."""
    assert service.runtime.settings.decode_threads == 1
    free = threading.Event()
    service.runtime.reader.pool.submit(free.wait)
    try:
        yield
    finally:
        free.set()
