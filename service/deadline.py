"""The deadline of a request, by the clock of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from types import TracebackType
from typing import TypeVar

from service.errors import DeadlineExceededError

Result = TypeVar("Result")


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
        """The error with which a request is answered once the deadline has passed."""
        return DeadlineExceededError(f"no answer was ready within {self.seconds:g} seconds")

    def limit(self, late: Callable[[], Exception] | None = None) -> Limit:
        """Cancels what runs inside at the deadline, and raises what `late` makes instead, if not `error()`."""
        return Limit(self.at, late or self.error)

    async def within(self, work: Awaitable[Result]) -> Result:
        """The result of `work`, which is cancelled at the deadline.

        Raises:
            DeadlineExceededError: if the deadline came first.
        """
        async with self.limit():
            return await work


class Limit:
    """Cancels what runs inside `async with` at a time of the loop's clock, and raises what `late` makes instead.

    It leaves no reference cycle: a task that is cut off keeps its error, whose traceback keeps the frames of this
    limit. If these referred to the task, as the frame of a generator of `contextlib` does, all that the task held would
    stay in memory until the garbage collector runs.
    """

    def __init__(self, at: float, late: Callable[[], Exception]) -> None:
        self._timeout: asyncio.Timeout | None = asyncio.timeout_at(at)
        self._late = late

    async def __aenter__(self) -> None:
        assert self._timeout is not None
        await self._timeout.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        timeout, self._timeout = self._timeout, None
        assert timeout is not None
        try:
            await timeout.__aexit__(kind, error, trace)
        except TimeoutError:  # of this limit: one from inside is not raised by the call, and passes on
            del timeout, error, trace
        else:
            return
        raise self._late()
