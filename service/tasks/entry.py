"""A task by name, and what became of its file."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from service.errors import NotReadyError
from service.model.loaded import LoadedTask

State = Literal["available", "loading", "loaded", "failed"]

_UNANSWERED: dict[State, str] = {"available": "is not loaded", "loading": "is being loaded", "failed": "cannot serve"}


@dataclass(frozen=True)
class EntrySnapshot:
    """An entry as it is sent to other processes; digest, generation: of what answers, None and 0 without a task."""

    state: State
    reason: str | None
    wanted: bool
    digest: str | None
    generation: int


@dataclass(frozen=True)
class Entry:
    """A task by name; `reason` says why a state is `failed`, `task` is what answers, whatever the state.

    wanted: whether a new file is to be put into service.
    """

    name: str
    path: Path
    state: State = "available"
    reason: str | None = None
    task: LoadedTask | None = None
    wanted: bool = False

    def task_if_same(self, data: bytes) -> LoadedTask | None:
        """What answers, if it is the task of these bytes; else None."""
        if self.task is not None and hashlib.sha256(data).hexdigest() == self.task.digest:
            return self.task
        return None

    def answering(self) -> LoadedTask:
        """What answers; raises NotReadyError if nothing does, saying why."""
        if self.task is None:
            reason = f": {self.reason}" if self.reason else ""
            passing = self.state == "loading"
            raise NotReadyError(f"the task {self.name!r} {_UNANSWERED[self.state]}{reason}", passing=passing)
        return self.task

    def snapshot(self) -> EntrySnapshot:
        """The entry as it is sent to other processes."""
        digest, generation = (self.task.digest, self.task.generation) if self.task else (None, 0)
        return EntrySnapshot(self.state, self.reason, self.wanted, digest, generation)
