"""Building of tasks from the bytes of their files, each as a new generation of its name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fpet.errors import FpetError, TaskError
from service.errors import InvalidTaskError
from service.model.loaded import LoadedTask
from service.tasks.entry import Entry, EntrySnapshot
from service.tasks.folder import without_folder
from service.tasks.loading import Load, parse


class TaskBuilder:
    """Builds tasks by `load`; read: gives the content of a file, or raises TaskError.

    Generations are kept of every name that ever served, so that a task that comes back is not taken for the one before.
    """

    def __init__(self, load: Load, read: Callable[[Path], bytes]) -> None:
        self._load = load
        self._read = read
        self._generations: dict[str, int] = {}

    def build(self, entry: Entry, data: bytes) -> LoadedTask:
        """Builds the task of an entry as the next generation.

        Raises:
            FpetError: if the bytes hold no task, or one that cannot serve or has another or a reserved name.
        """
        return self._load(parse(data, entry), self._generations.get(entry.name, 0) + 1)

    def build_as(self, entry: Entry, snapshot: EntrySnapshot, content: bytes) -> LoadedTask:
        """Builds the task that another process built, as the same generation; content: of its file, which is read if
        that is empty.

        Raises:
            InvalidTaskError: if the file is another one, or the task cannot serve; the other process logs it.
        """
        try:
            task = parse(content or self._read(entry.path), entry)
            if task.digest != snapshot.digest:
                raise TaskError(f"{entry.path}: the file is another one by now")
            return self._load(task, snapshot.generation)
        except FpetError as error:
            raise InvalidTaskError(without_folder(entry.path, error)) from error

    def note_served(self, task: LoadedTask) -> None:
        """Notes that a task is put into service: the next one of its name has a later generation."""
        self._generations[task.header.name] = task.generation
