"""The moment until which a client waits for its answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from service.errors import DeadlineExceededError


@dataclass(frozen=True)
class Deadline:
    """`at` is a time of the running event loop's clock, `seconds` how long before it the wait began.

    asked_for: whether the client said so, or else the service.
    """

    at: float
    seconds: float
    asked_for: bool

    @classmethod
    def after(cls, seconds: float, *, asked_for: bool = False) -> Deadline:
        """The deadline that many seconds from now."""
        return cls(asyncio.get_running_loop().time() + seconds, seconds, asked_for)

    def passed(self) -> bool:
        """Whether it is too late."""
        return asyncio.get_running_loop().time() >= self.at

    def error(self) -> DeadlineExceededError:
        """What the client is told when it is."""
        return DeadlineExceededError(f"no answer was ready within {self.seconds:g} seconds")

    @asynccontextmanager
    async def limit(self) -> AsyncIterator[None]:
        """Cancels what runs inside at the deadline.

        Raises:
            DeadlineExceededError: in place of the cancelled work.
        """
        try:
            async with asyncio.timeout_at(self.at) as timeout:
                yield
        except TimeoutError:
            if not timeout.expired():
                raise
        else:
            return
        # It knows the task, which keeps the error that ends it, which keeps this frame: whatever the task holds would
        # wait for the garbage collector.
        del timeout
        raise self.error()
