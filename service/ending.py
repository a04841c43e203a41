"""The end of a process: how long it may take, also with threads that do not end, as those that wait for a device that
no longer answers."""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, NoReturn

from service.settings import Settings

logger = logging.getLogger(__name__)

FAILED = 1  # as an exit code

# Once all that was accepted is answered, or its time is over: seconds in which threads end that nothing keeps, then
# the collector takes the last traces, and then Python ends.
THREADS_SECONDS = 3.0
TRACES_SECONDS = 5.0
_REST_SECONDS = 2.0


def longest_end(settings: Settings) -> float:
    """Seconds in which a process has ended that was told to, if it ever does."""
    answered = settings.shutdown_delay + math.ceil(settings.drain_seconds)  # as Uvicorn counts
    return answered + THREADS_SECONDS + TRACES_SECONDS + _REST_SECONDS


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
        """As the pool does, but what is cancelled keeps nothing: the pool holds a call until a thread comes to it, and
        the image of a request that is over would wait there, in no count."""
        held = [partial(call, *args, **options)]

        def made() -> Any:
            return held.pop()()

        future = super().submit(made)
        future.add_done_callback(lambda _: held.clear())
        return future

    def end(self, until: float) -> list[str]:
        """Leaves undone what no thread has begun, and waits for the threads until that time of the monotonic clock; the
        names of those that have not ended by then."""
        self.shutdown(wait=False, cancel_futures=True)
        for thread in self._own:
            thread.join(max(0.0, until - time.monotonic()))
        return [thread.name for thread in self._own if thread.is_alive()]


def end_without(threads: Sequence[str]) -> NoReturn:
    """Ends the process as one that failed. Python itself would wait for these threads."""
    logger.error("the service ends without threads that do not end: %s", ", ".join(threads))
    logging.shutdown()
    os._exit(FAILED)
