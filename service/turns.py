"""Turns at what only a few may use at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager

from service.fair_queue import FairQueue


class Turns:
    """So many at once; those who wait come by kind in rotation, so that a kind of which many wait holds up no other.

    All state belongs to the event loop.
    """

    def __init__(self, count: int) -> None:
        self._free = count
        self._waiting: FairQueue[None, Hashable, asyncio.Future[None]] = FairQueue()

    @asynccontextmanager
    async def turn(self, kind: Hashable) -> AsyncIterator[None]:
        """Waits for a turn, and has it until the end of the block."""
        if self._free:
            self._free -= 1
        else:
            await self._wait(kind)
        try:
            yield
        finally:
            self._pass_on()

    async def _wait(self, kind: Hashable) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(None, kind, turn)
        try:
            await turn
        except asyncio.CancelledError:
            self._waiting.discard(None, kind, turn)
            if turn.done() and not turn.cancelled():  # it came just then
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        while self._waiting:
            _, (turn,), charge = self._waiting.take(1, lambda _: 1)
            charge(0.0)  # all are of one group
            if not turn.done():  # as when who waits was cancelled, and has not left yet
                turn.set_result(None)
                return
        self._free += 1
