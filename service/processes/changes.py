"""What changed in the first of several processes changes in the others too, before the change is answered."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from typing import Literal

from fpet.errors import TaskError
from service.errors import NotReadyError
from service.loaded import LoadedTask
from service.processes.siblings import LATER, Siblings
from service.runtime import Runtime

logger = logging.getLogger(__name__)

CHANGE = "change"
_DONE = b"done"

Kind = Literal["serve", "unload", "drop", "pin", "unpin"]


@dataclass(frozen=True)
class _Change:
    """kind: what became of the task; digest, generation: of what then serves, if it does."""

    kind: Kind
    task: str
    digest: str | None
    generation: int


class Changes:
    """The changes of the tasks of a runtime, which those of the other processes repeat."""

    def __init__(self, runtime: Runtime, siblings: Siblings) -> None:
        self._runtime = runtime
        self._siblings = siblings
        self._one_after_the_other = asyncio.Lock()

    @asynccontextmanager
    async def followed(self, kind: Kind, task: str) -> AsyncIterator[None]:
        """The block changes a task in this process; the others follow, unless it raises, before the next change.

        Raises:
            NotReadyError: if one of the others does not follow; the change is made all the same.
        """
        if self._siblings.alone:
            yield
            return
        async with self._one_after_the_other:
            yield
            await self._tell(kind, task)

    async def follow(self, told: bytes) -> bytes:
        """What the first process is answered when it tells of a change: that it was made here too, or why not."""
        change = _Change(**json.loads(told))
        try:
            await self._repeat(change)
        except Exception as error:
            logger.exception("a change of the task %s cannot be followed", change.task)
            return f"{type(error).__name__}: {error}".encode()
        return _DONE

    async def _tell(self, kind: Kind, task: str) -> None:
        serving = {one.header.name: one for one in self._runtime.catalog.serving()}.get(task)
        digest, generation = (serving.digest, serving.generation) if serving else (None, 0)
        change = json.dumps(asdict(_Change(kind, task, digest, generation))).encode()
        try:
            answers = await self._siblings.ask(CHANGE, change, LATER)
        except TimeoutError as error:
            raise NotReadyError("one of the processes did not follow in time", passing=True) from error
        for answer in answers:
            if answer != _DONE:
                reason = "it is not there" if answer is None else answer.decode()
                raise NotReadyError(f"one of the processes did not follow: {reason}", passing=True)

    async def _repeat(self, change: _Change) -> None:
        runtime, catalog, name = self._runtime, self._runtime.catalog, change.task

        def serve() -> None:
            catalog.skip_to(name, change.generation)
            catalog.scan()
            if not _is(catalog.entry(name).task, change):
                entry = catalog.load(name)
                if not _is(entry.task, change):
                    raise TaskError(entry.reason or "its file is another by now")

        match change.kind:
            case "serve":
                await runtime.administer(serve)
            case "drop":
                await runtime.administer(catalog.scan)
            case "unload":
                await runtime.administer(lambda: catalog.unload(name))
            case "pin":
                await runtime.fold(lambda: runtime.folding.pin(catalog.loaded(name)))
            case "unpin":
                await runtime.fold(lambda: runtime.folding.unpin(catalog.loaded(name)))


def _is(task: LoadedTask | None, change: _Change) -> bool:
    return task is not None and task.digest == change.digest and task.generation >= change.generation
