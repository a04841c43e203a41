"""The requests in flight, so that what they need outlives them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


class InFlight:
    """The requests that are being served, each by a task of the event loop."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[object]] = set()

    @contextmanager
    def tracked(self) -> Iterator[None]:
        """Counts the current task as a request in flight until the end of the block."""
        task = asyncio.current_task()
        assert task is not None, "requests are served by an event loop"
        self._tasks.add(task)
        try:
            yield
        finally:
            self._tasks.discard(task)

    async def wait(self, seconds: float) -> None:
        """Waits until the requests that are in flight now have ended, for at most `seconds`."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)
