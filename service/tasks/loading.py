"""Loading of tasks: parsing their files, and logging the outcome."""

from __future__ import annotations

import logging
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

# Builds a task for service as the given generation, in any thread; raises FpetError if it cannot.
Load = Callable[[Task, int], LoadedTask]


def parse(data: bytes, entry: Entry) -> Task:
    """The task of the bytes of an entry's file; raises TaskError if they hold no task, or one of another or a reserved
    name."""
    if entry.name == _TAKEN:
        raise TaskError(f"{entry.path}: no task can be called {_TAKEN!r}: its path has the statistics of all")
    task = Task.parse(data, entry.path)
    if task.header.name != entry.name:
        raise TaskError(f"{entry.path}: the file holds the task {task.header.name!r}, not {entry.name!r}")
    return task


def log_change(what: str, task: LoadedTask | None) -> None:
    """Logs what became of a task in service; does nothing without one."""
    if task is not None:
        logger.info(
            "the task %s is %s: generation %d, digest %s", task.header.name, what, task.generation, task.digest[:12]
        )


def log_failure(entry: Entry, error: Exception, *, refused: bool = False) -> str:
    """Logs why a task cannot be put into service; returns the reason for clients, without details of internal errors.

    refused: the file was sent by a client, so that a fault in it is a warning and no error.
    """
    if not isinstance(error, FpetError):
        logger.error("the task %s failed to load: %s", entry.name, error, exc_info=error)
        return "an internal error; the log has it"
    if refused:
        logger.warning("the task %s was refused: %s", entry.name, error)
    else:
        logger.error("the task %s failed to load: %s", entry.name, error)
    return without_folder(entry.path, error)


def may_pass(entry: Entry, error: Exception) -> bool:
    """Whether a file could not be read for a transient reason, as a disk's or too many open files. When that is over
    the file's stamp is the same as before, so that the watcher would not notice."""
    cause = error.__cause__
    return isinstance(cause, OSError) and not isinstance(cause, PermissionError) and status_of(entry.path) is not None
