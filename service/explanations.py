"""Explanations of which patches of an image merged, a few at once and outside the batches of classification."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import TypeVar

from torch import Tensor

from service.deadline import Deadline
from service.decode import Decoder
from service.engine import Engine
from service.errors import OverloadedError
from service.model.loaded import LoadedTask
from service.model.work import Work

Result = TypeVar("Result")

MOST = 8  # in progress at once, of which one computes


class Explanations:
    """Runs images in the thread of `pool`, off the path of batches; used by the event loop."""

    def __init__(self, engine: Engine, decoder: Decoder, pool: Executor) -> None:
        self._engine = engine
        self._decoder = decoder
        self._pool = pool
        self._under_way = 0

    @contextmanager
    def admitted(self) -> Iterator[None]:
        """Counts one as under way for as long as the `with` lasts.

        Raises:
            OverloadedError: if there are `MOST` already.
        """
        if self._under_way >= MOST:
            raise OverloadedError(f"{MOST} explanations are under way, and no more are at once")
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1

    async def explain(
        self, task: LoadedTask, image: bytes, show: Callable[[Tensor, Tensor], Result], *, deadline: Deadline
    ) -> Result:
        """What `show` makes of an encoded image's pixels, uint8 [3, H, W], and of which token holds each patch, int64
        [rows, columns]. It is called in the pool's thread.

        Raises:
            BadImageError, TooLargeError, UnsupportedTypeError: if the image cannot be decoded.
            DeadlineExceededError: at the deadline.
            UnsupportedError: if the task's reduction forms no groups.
        """
        async with deadline.limit():
            ((pixels,),) = await self._decoder.decode([image], [task.header.preprocessing], task.header.name)
            return await asyncio.get_running_loop().run_in_executor(
                self._pool, lambda: show(pixels, self._engine.token_of_patch(Work(task, pixels)))
            )
