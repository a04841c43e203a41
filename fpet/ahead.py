"""Batches that are made in threads while those before them are used."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import torch

Made = TypeVar("Made")


def batches_ahead(make: Callable[[int], Made], count: int, batch_size: int) -> Generator[list[Made], None, None]:
    """What is made of each index below `count`, in order, a batch at a time; what `make` raises, its batch raises.

    The next batch is made meanwhile. Each call of `make` has one thread, also for what torch computes in it; several
    run at once. Who does not take all batches closes the generator, or its threads wait as long as it is there.
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
    own = torch.get_num_threads()

    def initialise() -> None:
        # The first call makes torch set up this thread from a global, which would otherwise override the second later.
        torch.get_num_threads()
        torch.set_num_threads(1)
        # That set the global too, for all threads to come. Only a call in another thread leaves this one as it is.
        other = threading.Thread(target=torch.set_num_threads, args=(own,))
        other.start()
        other.join()

    threads = ThreadPoolExecutor(thread_name_prefix="decode", initializer=initialise)
    try:
        yield threads
    finally:
        threads.shutdown(cancel_futures=True)
