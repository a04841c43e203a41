"""A call that those who make it at the same time share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

Result = TypeVar("Result")


class SharedCall(Generic[Result]):
    """Calls `call`, but whoever asks while a call is under way waits for that one. If a caller is cancelled, the call
    goes on for the others."""

    def __init__(self, call: Callable[[], Coroutine[Any, Any, Result]]) -> None:
        self._call = call
        self._running: asyncio.Task[Result] | None = None

    async def __call__(self) -> Result:
        """The result of the call, or its error."""
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._call())
        return await asyncio.shield(self._running)
