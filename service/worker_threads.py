"""Thread pools that can be ended within a time limit, with a number of torch threads for each of their threads."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any

from fpet.hardware.threads import compute_in

# Of threads, beyond that of the process: with 5 more one has a third of the weight. Under load the thread that answers
# would wait in turn with all others, and with it whoever is refused; the sooner images are decoded, the more of them
# share a batch; and nobody waits for what is done in the background.
DECODING, COMPUTING, BACKGROUND = 5, 10, 15


class Threads(ThreadPoolExecutor):
    """A pool that knows its threads; begin: called in each of them first."""

    def __init__(self, count: int, name: str, begin: Callable[[], None]) -> None:
        own: list[threading.Thread] = []

        def initialise() -> None:  # which does not know the pool: its threads end when nobody does any more
            own.append(threading.current_thread())
            begin()

        super().__init__(count, thread_name_prefix=name, initializer=initialise)
        self._own = own

    def submit(self, call: Callable[..., Any], /, *args: Any, **options: Any) -> Future[Any]:
        """As the base class does, but a cancelled call releases its arguments at once. The base class keeps a call
        until a thread takes it from the queue, and with it the image of a request that is over, which nothing counts.
        """
        held = [partial(call, *args, **options)]

        def made() -> Any:
            return held.pop()()

        future = super().submit(made)
        future.add_done_callback(lambda _: held.clear())
        return future

    def end(self, until: float) -> list[str]:
        """Cancels the calls that no thread has begun, and waits for the threads until that time of the monotonic clock;
        returns the names of those that have not ended by then."""
        self.shutdown(wait=False, cancel_futures=True)
        for thread in self._own:
            thread.join(max(0.0, until - time.monotonic()))
        return [thread.name for thread in self._own if thread.is_alive()]


def torch_threads(name: str, count: int, threads: int, niceness: int = COMPUTING) -> Threads:
    """A pool of threads in each of which torch computes in `threads` threads; niceness: added to the process's own."""

    def begin() -> None:
        _be_nice(niceness)
        compute_in(threads)

    return Threads(count, name, begin)


def _be_nice(niceness: int) -> None:
    """Lowers the priority of the calling thread, and so of those that it starts; only Linux has one for each thread."""
    if sys.platform == "linux":
        own = os.getpriority(os.PRIO_PROCESS, os.getpid())  # of the main thread: the caller may have inherited a lower
        with suppress(PermissionError):  # a sandbox may forbid it
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), own + niceness)
