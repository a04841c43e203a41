"""Where answers are written: on the event loop, if they are small."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from service.runtime import Runtime

Result = TypeVar("Result")

_FEW = 2_000  # values of an answer: some milliseconds, in which the event loop does nothing else


async def written(runtime: Runtime, task: str, values: int, write: Callable[[], Result]) -> Result:
    """What `write` makes of so many values of an answer; of many in a thread, in which tasks take turns."""
    return write() if values <= _FEW else await runtime.texts.call(task, write)
