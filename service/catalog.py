"""The tasks in the task folder: which there are, which answer, and why the others do not."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from fpet.errors import FpetError, TaskError
from fpet.files import read_bytes, remove_abandoned, write_atomically
from fpet.task import Task
from service.errors import InvalidTaskError, NotReadyError, StorageError, UnknownTaskError
from service.loaded import LoadedTask
from service.metrics import Metrics

logger = logging.getLogger(__name__)

State = Literal["available", "loading", "loaded", "failed"]
SUFFIX = ".safetensors"

# A file's time of change, length and inode, which differ once it is another file; then the time at which anything about
# it changed, as who may read it.
_Stamp = tuple[int, int, int, int]


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


class Catalog:
    """Names to tasks. An entry is replaced as a whole, so readers in other threads see the old one or the new.

    What changes entries is called in one thread, the loader's, so no two changes can cross.

    load: builds a task for service as the given generation; raises FpetError if it cannot. max_bytes: of a task file.

    Raises:
        TaskError: if the folder does not exist.
    """

    def __init__(
        self, folder: Path, load: Callable[[Task, int], LoadedTask], metrics: Metrics, *, max_bytes: int
    ) -> None:
        if not folder.is_dir():
            raise TaskError(f"{folder}: the task folder does not exist")
        self.folder = folder
        self._load = load
        self._metrics = metrics
        self._max_bytes = max_bytes
        for path in remove_abandoned(folder):
            logger.info("removed %s, left by a process that was killed while it wrote", path.name)
        self._skipped: set[Path] = set()
        self._entries = {path.stem: Entry(path.stem, path) for path in self._paths()}
        self._stamps: dict[str, _Stamp | None] = {}
        # Of every name that ever served: a task that comes back is not taken for the one before.
        self._generations: dict[str, int] = {}

    def entries(self) -> list[Entry]:
        """All tasks, by name."""
        entries = dict(self._entries)
        return [entries[name] for name in sorted(entries)]

    def serving(self) -> list[LoadedTask]:
        """All tasks that answer, by name."""
        return [entry.task for entry in self.entries() if entry.task]

    def entry(self, name: str) -> Entry:
        """The task of that name.

        Raises:
            UnknownTaskError
        """
        try:
            return self._entries[name]
        except KeyError:
            raise UnknownTaskError(f"there is no task {name!r}; GET /v1/tasks lists them") from None

    def require(self, names: Iterable[str]) -> None:
        """Raises TaskError if one of them is no task."""
        for name in sorted(set(names) - self._entries.keys()):
            raise TaskError(f"{self.folder}: there is no task {name!r} to load at start-up")

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
        entry = self._replace(replace(self.entry(name), state="loading", reason=None, wanted=True))
        self._stamps[name] = _stamp(entry.path)
        try:
            return self._serve(entry, self._build(name, self._read(entry.path), entry.path))
        except Exception as error:  # whatever a file holds, it must not keep the others from serving
            self._metrics.task_loads.labels("failed").inc()
            return self._replace(replace(entry, state="failed", reason=_reason(entry, error)))

    def unload(self, name: str) -> Entry:
        """Takes a task out of service; requests in flight still finish on it."""
        entry = replace(self.entry(name), state="available", reason=None, task=None, wanted=False)
        self._metrics.remove_task_bytes(name)
        return self._replace(entry)

    def put(self, name: str, data: bytes) -> Entry:
        """Puts the task of a file's bytes into service, and its file into the folder; all of it happens or nothing.

        Raises:
            InvalidTaskError: if it cannot serve, with the reason.
            StorageError: if the file cannot be written.
        """
        path = self.folder / f"{name}{SUFFIX}"
        entry = self._entries.get(name, Entry(name, path))
        try:
            loaded = self._build(name, data, path)
        except Exception as error:
            self._metrics.task_loads.labels("failed").inc()
            raise InvalidTaskError(_reason(entry, error)) from error
        try:
            write_atomically(path, data, TaskError)
        except TaskError as error:
            raise StorageError(_reason(entry, error)) from error
        self._stamps[name] = _stamp(path)
        return self._serve(replace(entry, wanted=True), loaded)

    def delete(self, name: str) -> None:
        """Takes a task out of service and its file out of the folder.

        Raises:
            StorageError: if the file cannot be removed; the task then goes on serving.
        """
        entry = self.entry(name)
        try:
            entry.path.unlink(missing_ok=True)
        except OSError as error:
            raise StorageError(f"{entry.path.name}: cannot be removed: {error.strerror}") from error
        self._drop(name)

    def scan(self) -> list[Entry]:
        """Follows the folder: new files are put into service, changed ones too if they are wanted, and those that are
        gone are dropped. Returns what was loaded or failed to."""
        paths = {path.stem: path for path in self._paths()}
        for name in self._entries.keys() - paths.keys():
            self._drop(name)
        changed = []
        for name, path in paths.items():
            entry = self._entries.get(name)
            if entry is None:
                self._replace(Entry(name, path, wanted=True))
                changed.append(name)
            elif entry.wanted and self._differs(entry):
                changed.append(name)
        return [self.load(name) for name in changed]

    def _differs(self, entry: Entry) -> bool:
        """Whether a file is another than was last looked at; or one that could not serve, but now may."""
        now, then = _stamp(entry.path), self._stamps.get(entry.name)
        if entry.state != "failed" and now is not None and then is not None:
            return now[:3] != then[:3]  # what serves does not change with who may read it
        return now != then

    def _paths(self) -> list[Path]:
        paths = [path for path in sorted(self.folder.glob(f"*{SUFFIX}")) if not path.name.startswith(".")]
        return [path for path in paths if self._can_be_told(path)]

    def _can_be_told(self, path: Path) -> bool:
        """Names of files may be any bytes; those that are not UTF-8 have no place in an answer."""
        try:
            path.name.encode()
        except UnicodeEncodeError:
            if path not in self._skipped:
                self._skipped.add(path)
                logger.warning("skipped the task file %a: its name is not UTF-8", path.name)
            return False
        return True

    def _read(self, path: Path) -> bytes:
        status = _status(path)
        if status is not None and not stat.S_ISREG(status.st_mode):  # to open a pipe is to wait for who writes to it
            raise TaskError(f"{path}: cannot be read: it is not a regular file")
        if status is not None and status.st_size > self._max_bytes:
            raise TaskError(f"{path}: {status.st_size} bytes; the limit for a task file is {self._max_bytes}")
        return read_bytes(path, TaskError)

    def _build(self, name: str, data: bytes, path: Path) -> LoadedTask:
        task = Task.parse(data, path)
        if task.header.name != name:
            raise TaskError(f"{path}: the file holds the task {task.header.name!r}, not {name!r}")
        return self._load(task, self._generations.get(name, 0) + 1)

    def _serve(self, entry: Entry, loaded: LoadedTask) -> Entry:
        self._generations[entry.name] = loaded.generation
        self._metrics.add_task(entry.name)
        self._metrics.task_loads.labels("loaded").inc()
        self._metrics.set_task_bytes(entry.name, loaded.size)
        return self._replace(replace(entry, state="loaded", reason=None, task=loaded))

    def _drop(self, name: str) -> None:
        del self._entries[name]
        self._stamps.pop(name, None)
        self._metrics.remove_task_bytes(name)

    def _replace(self, entry: Entry) -> Entry:
        self._entries[entry.name] = entry
        return entry


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:
        return None


def _stamp(path: Path) -> _Stamp | None:
    status = _status(path)
    return status and (status.st_mtime_ns, status.st_size, status.st_ino, status.st_ctime_ns)


def _reason(entry: Entry, error: Exception) -> str:
    """What clients are told; they need not know where the folder lies, nor the details of what nobody foresaw."""
    foreseen = isinstance(error, FpetError)
    logger.error("the task %s failed to load: %s", entry.name, error, exc_info=None if foreseen else error)
    return str(error).replace(str(entry.path), entry.path.name) if foreseen else "an internal error; the log has it"
