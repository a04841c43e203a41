"""Threads that take turns between kinds of calls, so that many of one kind do not hold up the others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from concurrent.futures import Executor
from typing import TypeVar

from service.fair_semaphore import FairSemaphore

Result = TypeVar("Result")


class FairThreads:
    """The threads of a pool, which is first in, first out: so no more than `ahead` calls are in it at once, and the
    others wait before it, in rotation over their kinds.

    pool, ahead: as given. More calls ahead keep the threads busier, and a kind's first call waits for longer behind
    those of others.
    """

    def __init__(self, pool: Executor, ahead: int) -> None:
        self.ahead = ahead
        self.pool = pool
        self._slots = FairSemaphore(ahead)

    async def call(self, kind: Hashable, function: Callable[..., Result], *arguments: object) -> Result:
        """Calls the function in a thread when it is its kind's turn. If the caller is cancelled before that, it is not
        called."""
        async with self._slots.slot(kind):
            return await asyncio.get_running_loop().run_in_executor(self.pool, function, *arguments)
