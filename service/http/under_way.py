"""Which requests are being served, so that what they need outlives them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


class UnderWay:
    """The requests that are being served, each by a task of the event loop."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[object]] = set()

    @contextmanager
    def one(self) -> Iterator[None]:
        """The block serves a request; to be entered in the request's task."""
        task = asyncio.current_task()
        assert task is not None, "requests are served by an event loop"
        self._tasks.add(task)
        try:
            yield
        finally:
            self._tasks.discard(task)

    async def ended(self, seconds: float) -> None:
        """Waits for those that are under way now, for at most so long."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)
