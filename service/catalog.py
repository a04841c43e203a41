"""The tasks in the task folder: which there are, which answer, and why the others do not."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from fpet.errors import FpetError, TaskError
from fpet.task import Task
from service.engine import LoadedTask
from service.errors import NotReadyError, UnknownTaskError
from service.metrics import Metrics

logger = logging.getLogger(__name__)

State = Literal["available", "loading", "loaded", "failed"]
SUFFIX = ".safetensors"


@dataclass(frozen=True)
class Entry:
    """A task by name; `reason` says why a state is `failed`, `task` is what answers, whatever the state."""

    name: str
    path: Path
    state: State = "available"
    reason: str | None = None
    task: LoadedTask | None = None


class Catalog:
    """Names to tasks. An entry is replaced as a whole, so readers in other threads see the old one or the new.

    load: builds a task for service as the given generation; raises FpetError if it cannot.
    """

    def __init__(self, folder: Path, load: Callable[[Task, int], LoadedTask], metrics: Metrics) -> None:
        if not folder.is_dir():
            raise TaskError(f"{folder}: the task folder does not exist")
        self._load = load
        self._metrics = metrics
        paths = {path.stem: path for path in sorted(folder.glob(f"*{SUFFIX}"))}
        self._entries = {name: Entry(name, path) for name, path in paths.items()}

    def entries(self) -> list[Entry]:
        """All tasks, by name."""
        return [self._entries[name] for name in sorted(self._entries)]

    def entry(self, name: str) -> Entry:
        """The task of that name.

        Raises:
            UnknownTaskError
        """
        try:
            return self._entries[name]
        except KeyError:
            raise UnknownTaskError(f"there is no task {name!r}; GET /v1/tasks lists them") from None

    def loaded(self, name: str) -> LoadedTask:
        """The task of that name, ready to answer.

        Raises:
            UnknownTaskError: if there is none.
            NotReadyError: if it is not loaded, saying why.
        """
        entry = self.entry(name)
        if entry.task is None:
            raise NotReadyError(f"the task {name!r} is {entry.state}" + (f": {entry.reason}" if entry.reason else ""))
        return entry.task

    def load(self, name: str) -> Entry:
        """Reads a task's file and puts it into service; if that fails, what served before goes on serving."""
        entry = self._replace(replace(self.entry(name), state="loading", reason=None))
        generation = entry.task.generation + 1 if entry.task else 1
        try:
            task = Task.load(entry.path)
            if task.header.name != name:
                raise TaskError(f"{entry.path}: the file holds the task {task.header.name!r}, not {name!r}")
            loaded = self._load(task, generation)
        except Exception as error:  # whatever a file holds, it must not keep the others from serving
            self._metrics.task_loads.labels("failed").inc()
            return self._replace(replace(entry, state="failed", reason=_reason(entry, error)))
        self._metrics.add_task(name)
        self._metrics.task_loads.labels("loaded").inc()
        self._metrics.task_bytes.labels(self._metrics.label(name)).set(loaded.size)
        return self._replace(replace(entry, state="loaded", task=loaded))

    def _replace(self, entry: Entry) -> Entry:
        self._entries[entry.name] = entry
        return entry


def _reason(entry: Entry, error: Exception) -> str:
    """What clients are told; they need not know where the folder lies, nor the details of what nobody foresaw."""
    foreseen = isinstance(error, FpetError)
    logger.error("the task %s failed to load: %s", entry.name, error, exc_info=None if foreseen else error)
    return str(error).replace(str(entry.path), entry.path.name) if foreseen else "an internal error; the log has it"
