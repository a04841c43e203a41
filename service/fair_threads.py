"""Threads that take turns between kinds of calls, so that many of one kind do not hold up the others."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import Executor
from typing import TypeVar

Result = TypeVar("Result")


class FairThreads:
    """The threads of a pool, which is first in, first out: so no more than `ahead` calls are in it at once, and the
    others wait before it, in rotation over their kinds, in order within a kind. All state belongs to the event loop.

    pool, ahead: as given. More calls ahead keep the threads busier, and a kind's first call waits for longer behind
    those of others.
    """

    def __init__(self, pool: Executor, ahead: int) -> None:
        self.ahead = ahead
        self.pool = pool
        self._free = ahead
        self._waiting: dict[Hashable, deque[asyncio.Future[None]]] = {}  # of each kind; the next kind first

    async def call(self, kind: Hashable, function: Callable[..., Result], *arguments: object) -> Result:
        """Calls the function in a thread when it is its kind's turn. If the caller is cancelled before that, it is not
        called."""
        if self._free:
            self._free -= 1
        else:
            await self._turn(kind)
        try:
            return await asyncio.get_running_loop().run_in_executor(self.pool, function, *arguments)
        finally:
            self._release()

    async def _turn(self, kind: Hashable) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(kind, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it had come before the cancellation arrived
                self._release()
            raise

    def _release(self) -> None:
        """Gives a place that was held to the next that waits."""
        while self._waiting:
            kind = next(iter(self._waiting))
            turns = self._waiting.pop(kind)
            turn = turns.popleft()
            if turns:
                self._waiting[kind] = turns  # behind the other kinds
            if not turn.done():  # done: its caller was cancelled
                turn.set_result(None)
                return
        self._free += 1
