"""Batches that are made in threads while those before them are used."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import torch

from fpet.hardware.cores import cores
from fpet.hardware.threads import compute_in

Made = TypeVar("Made")

# The most threads, and how many more there are than cores, since some wait for a disk.
_MOST, _WAITING = 32, 4


def prefetched_batches(make: Callable[[int], Made], count: int, batch_size: int) -> Generator[list[Made], None, None]:
    """Yields batches of `make(0)`, `make(1)` and so on, below `count`; an error of `make` is raised in place of its
    batch.

    The next batch is made while one is used. Several calls of `make` run at once, each in one thread, in which torch
    starts no others. A caller that stops early must close the generator, or its threads wait as long as it exists.
    """
    with _threads() as threads:
        waiting: deque[Iterator[Made]] = deque()
        for start in range(0, count, batch_size):
            waiting.append(threads.map(make, range(start, min(start + batch_size, count))))
            if len(waiting) > 1:
                yield list(waiting.popleft())
        for batch in waiting:
            yield list(batch)


@contextmanager
def _threads() -> Iterator[ThreadPoolExecutor]:
    """A pool in whose threads torch starts no others."""
    own, count = torch.get_num_threads(), min(_MOST, cores() + _WAITING)
    all_here = threading.Barrier(count)
    threads = ThreadPoolExecutor(count, "decode", compute_in, (1,))
    try:
        for arrived in [threads.submit(all_here.wait) for _ in range(count)]:
            arrived.result()
        torch.set_num_threads(own)  # of threads that others start from now on
        yield threads
    finally:
        all_here.abort()  # whoever still waits there, because another could not be started
        threads.shutdown(cancel_futures=True)
