"""The first of several processes changes the tasks, and tells the others what became of each, which they repeat."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from typing import Any

from service.entry import Told
from service.errors import NotReadyError, ServiceError
from service.processes.siblings import LATER, Siblings, Silence
from service.runtime import Runtime

logger = logging.getLogger(__name__)

CHANGE = "change"
_DONE = b"done"


@dataclass(frozen=True)
class _Change:
    """told: what became of the task, None if it is gone; pinned: whether it is from now on, None if that stays."""

    task: str
    told: Told | None
    pinned: bool | None

    @classmethod
    def parse(cls, data: bytes) -> _Change:
        fields: dict[str, Any] = json.loads(data)
        told = fields.pop("told")
        return cls(told=told and Told(**told), **fields)


class Changes:
    """The changes of the tasks of a runtime, which those of the other processes repeat."""

    def __init__(self, runtime: Runtime, siblings: Siblings) -> None:
        self._runtime = runtime
        self._siblings = siblings
        self._one_after_the_other = asyncio.Lock()
        # What all others have followed, and of which tasks one of them has not what it was told last.
        self._followed: dict[str, Told] = {}
        self._behind: dict[str, Told | None] = {}

    @asynccontextmanager
    async def followed(self, task: str, *, pinned: bool | None = None) -> AsyncIterator[None]:
        """The block changes a task in this process; the others follow, unless it raises, before the next change.

        pinned: whether the block pinned it, or did so no longer.

        Raises:
            NotReadyError: if one of the others does not follow; the change is made all the same.
        """
        if self._siblings.alone:
            yield
            return
        async with self._one_after_the_other:
            yield
            try:
                await self._tell(task, pinned)
            except TimeoutError as error:
                raise NotReadyError(str(error)) from error

    async def share(self) -> None:
        """Tells the others of the tasks that became others since they were told, each again until all have followed.

        Raises:
            TimeoutError: if one of them does not answer.
        """
        async with self._one_after_the_other:
            entries = {entry.name: entry.told() for entry in self._runtime.catalog.entries()}
            for task in sorted(entries.keys() | self._followed.keys() | self._behind.keys()):
                told = entries.get(task)
                said = task in self._behind and self._behind[task] == told
                if task not in self._behind and self._followed.get(task) == told:
                    continue
                try:
                    await self._tell(task)
                except NotReadyError as error:
                    if not said:
                        logger.warning("the task %s: %s; trying again", task, error.message)

    async def follow(self, data: bytes) -> bytes:
        """What the first process is answered when it tells of a change: that it was made here too, or why not."""
        change = _Change.parse(data)
        try:
            await self._repeat(change)
        except ServiceError as error:
            return error.message.encode()
        except Exception:
            logger.exception("a change of the task %s cannot be followed", change.task)
            return b"an internal error; the log has it"
        return _DONE

    async def _tell(self, task: str, pinned: bool | None = None) -> None:
        """Raises NotReadyError if one of the others does not follow, and TimeoutError if it does not answer."""
        entry = {one.name: one for one in self._runtime.catalog.entries()}.get(task)
        told = entry.told() if entry else None
        self._behind[task] = told
        change = json.dumps(asdict(_Change(task, told, pinned))).encode()
        for answer in await self._siblings.ask(CHANGE, change, LATER):
            if answer != _DONE:
                reason = answer.value if isinstance(answer, Silence) else answer.decode()
                raise NotReadyError(f"one of the processes did not follow: {reason}")
        del self._behind[task]
        if told is None:
            self._followed.pop(task, None)
        else:
            self._followed[task] = told

    async def _repeat(self, change: _Change) -> None:
        runtime, catalog, name = self._runtime, self._runtime.catalog, change.task
        await runtime.administer(lambda: catalog.repeat(name, change.told))
        if change.pinned is not None:
            folding = runtime.folding
            apply = folding.pin if change.pinned else folding.unpin
            await runtime.fold(lambda: apply(catalog.loaded(name)))
