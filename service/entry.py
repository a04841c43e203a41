"""A task by name, and what became of its file."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from service.loaded import LoadedTask

State = Literal["available", "loading", "loaded", "failed"]


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

    def serving(self, data: bytes) -> LoadedTask | None:
        """What answers, if it is the task of these bytes."""
        if self.task is not None and hashlib.sha256(data).hexdigest() == self.task.digest:
            return self.task
        return None
