"""Loading tasks: what a file must hold, that a family is made once, and what is told of how it went."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from fpet.errors import FpetError, TaskError
from fpet.task import Task
from service.model.loaded import LoadedTask
from service.tasks.entry import Entry
from service.tasks.folder import without_folder
from service.tasks.stamps import status_of

logger = logging.getLogger(__name__)

# No task can be called so: GET /v2/models/stats has the statistics of all, where the metadata of this one would be.
_TAKEN = "stats"

# Builds a task for service as the given generation; raises FpetError if it cannot.
Load = Callable[[Task, int], LoadedTask]


class FirstsAlone:
    """Loads tasks in any number of threads; until one with the same methods is loaded, one after the other.

    So no two can be the first of a family, each with a family of its own, whose tasks would never share a batch. What
    is loaded must stay as long as others are, or its family goes with it.
    """

    def __init__(self, load: Load) -> None:
        self._load = load
        self._first = threading.Lock()
        self._known: set[str] = set()

    def __call__(self, task: Task, generation: int) -> LoadedTask:
        """Loads a task as the given generation; raises what `load` does."""
        # Different texts may be of one family, but never one text of two.
        methods = repr((task.header.adapter, task.header.reducer))
        if methods in self._known:
            return self._load(task, generation)
        with self._first:
            loaded = self._load(task, generation)
            self._known.add(methods)
            return loaded


def parse(data: bytes, entry: Entry) -> Task:
    """The task of the bytes of an entry's file; raises TaskError if they are none, or one of a name that it must not
    have."""
    if entry.name == _TAKEN:
        raise TaskError(f"{entry.path}: no task can be called {_TAKEN!r}: its path has the statistics of all")
    task = Task.parse(data, entry.path)
    if task.header.name != entry.name:
        raise TaskError(f"{entry.path}: the file holds the task {task.header.name!r}, not {entry.name!r}")
    return task


def log_change(what: str, task: LoadedTask | None) -> None:
    """Says what became of a task; of one that did not serve there is nothing to say."""
    if task is not None:
        logger.info(
            "the task %s is %s: generation %d, digest %s", task.header.name, what, task.generation, task.digest[:12]
        )


def log_failure(entry: Entry, error: Exception, *, refused: bool = False) -> str:
    """Says why a task cannot be put into service; returns what clients are told of it, who need not know the details of
    what nobody foresaw. refused: the file was sent by a client, whose fault is no trouble of the service's."""
    if not isinstance(error, FpetError):
        logger.error("the task %s failed to load: %s", entry.name, error, exc_info=error)
        return "an internal error; the log has it"
    if refused:
        logger.warning("the task %s was refused: %s", entry.name, error)
    else:
        logger.error("the task %s failed to load: %s", entry.name, error)
    return without_folder(entry.path, error)


def may_pass(entry: Entry, error: Exception) -> bool:
    """Whether a file could not be read for a reason of whose end nothing about the file will tell, as of a disk or of
    too many open files."""
    cause = error.__cause__
    return isinstance(cause, OSError) and not isinstance(cause, PermissionError) and status_of(entry.path) is not None
