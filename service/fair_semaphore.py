"""A semaphore that admits those who wait in rotation over their kinds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager

from service.fair_queue import FairQueue


class FairSemaphore:
    """At most `count` holders at once; waiters are admitted round-robin over their kinds, in order within a kind.

    So a kind with many waiters does not hold up the others. All state belongs to the event loop.
    """

    def __init__(self, count: int) -> None:
        self._free = count
        self._waiting: FairQueue[None, Hashable, asyncio.Future[None]] = FairQueue()

    @asynccontextmanager
    async def slot(self, kind: Hashable) -> AsyncIterator[None]:
        """Waits for a slot, and holds it until the end of the block."""
        if self._free:
            self._free -= 1
        else:
            await self._wait(kind)
        try:
            yield
        finally:
            self._release()

    async def _wait(self, kind: Hashable) -> None:
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(None, kind, granted)
        try:
            await granted
        except asyncio.CancelledError:
            self._waiting.discard(None, kind, granted)
            if granted.done() and not granted.cancelled():  # the slot was granted before the cancellation arrived
                self._release()
            raise

    def _release(self) -> None:
        while self._waiting:
            _, (granted,), charge = self._waiting.take(1, 1)
            charge(0.0)  # all are of one group
            if not granted.done():  # done: its waiter was cancelled, and has not run yet
                granted.set_result(None)
                return
        self._free += 1
