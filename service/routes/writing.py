"""Where answers are written: on the event loop, if they are small."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from fastapi import Request

from service.deadline import Deadline
from service.http.disconnect import unless_gone
from service.routes.dependencies import runtime_of

Result = TypeVar("Result")

_FEW = 2_000  # values of an answer: some milliseconds, in which the event loop does nothing else


async def written(request: Request, deadline: Deadline, task: str, values: int, write: Callable[[], Result]) -> Result:
    """What `write` makes of so many values of an answer; of many in a thread, in which tasks take turns.

    Raises:
        DeadlineExceededError, ClientGoneError: if the deadline came first, or the client left.
    """
    if values <= _FEW:
        return write()
    return await unless_gone(request, deadline.within(runtime_of(request).texts.call(task, write)))
