"""The tasks of the task folder: loading, replacing and removing them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from dataclasses import replace
from pathlib import Path

from fpet.errors import FpetError, TaskError
from service.errors import InvalidTaskError
from service.metrics import Metrics
from service.model.loaded import LoadedTask
from service.tasks.building import TaskBuilder
from service.tasks.entries import Entries
from service.tasks.entry import Entry, EntrySnapshot
from service.tasks.folder import SUFFIX, TaskFolder
from service.tasks.loading import Load, log_change, log_failure, may_pass
from service.tasks.stamps import Stamps, status_of


class Catalog:
    """The tasks of the files in a folder; entries: what became of each, to be read by any thread.

    Methods that change entries are called in one thread, the loader's, so that no two changes interleave.

    load: builds a task for service; max_bytes: of a task file; keeps_content: as of `Entries`.

    Raises:
        TaskError: if the folder does not exist or cannot be listed.
    """

    def __init__(
        self, folder: Path, load: Load, metrics: Metrics, *, max_bytes: int, keeps_content: bool = False
    ) -> None:
        self.folder = folder
        self._files = TaskFolder(folder, max_bytes)
        self._builder = TaskBuilder(load, self._files.read)
        self._metrics = metrics
        self.entries = Entries({name: Entry(name, path) for name, path in self._files.files().items()}, keeps_content)
        self._looked_at = Stamps()

    def require(self, names: Iterable[str]) -> None:
        """Raises TaskError if one of them is no task."""
        for name in sorted(set(names) - self.entries.names()):
            raise TaskError(f"{self.folder}: there is no task {name!r} to load at start-up")

    def read(self, path: Path) -> bytes:
        """The content of a task file; raises TaskError if it cannot be read."""
        return self._files.read(path)

    def apply_snapshot(self, name: str, snapshot: EntrySnapshot | None, content: bytes) -> None:
        """Makes a task's entry equal to that of the process that made the change; None removes it.

        content: of its file, if that process still had it; else the file is read if it is to serve anew.

        Raises:
            InvalidTaskError: if the file is another by now, or cannot serve; all stays as it is.
        """
        if snapshot is None:
            if self.entries.find(name):
                self._drop(name)
            return
        entry = self._entry_or_new(name)
        own = entry.snapshot()
        if snapshot.digest is None and own.digest is not None:
            entry = self.unload(name)
        elif (snapshot.digest, snapshot.generation) != (own.digest, own.generation):
            entry = self._serve(entry, self._builder.build_as(entry, snapshot, content), counted=False)
        self.entries.put(replace(entry, state=snapshot.state, reason=snapshot.reason, wanted=snapshot.wanted))

    def in_folder(self, name: str) -> Entry:
        """The task of that name, or what it would begin as, if its file came since the folder was looked at.

        Raises:
            UnknownTaskError: if there is neither.
            StorageError: if the folder is gone or cannot be listed, which says nothing about the file.
        """
        self._files.require()
        path = None if self.entries.find(name) else self._files.find(name)
        return Entry(name, path) if path else self.entries.require(name)

    def load(self, name: str) -> Entry:
        """Reads a task's file and puts it into service; if that fails, what served before goes on serving.

        Raises:
            UnknownTaskError: if there is no such task.
            StorageError: as `in_folder`.
        """
        entry = self._begin(self.in_folder(name))
        return self._end(entry, self._try(entry))

    def load_all(self, names: Iterable[str], pool: Executor) -> list[Entry]:
        """As `load`, of several tasks, which threads of the pool read and build beside each other.

        Raises:
            UnknownTaskError: if there is no such task.
            CancelledError, RuntimeError: if the pool is shut down meanwhile.
        """
        entries = [self._begin(self.entries.require(name)) for name in names]
        tried = pool.map(self._try, entries)
        return [self._end(entry, built) for entry, built in zip(entries, tried, strict=True)]

    def unload(self, name: str) -> Entry:
        """Takes a task out of service; requests in flight still finish on it.

        Raises:
            UnknownTaskError: if there is no such task.
        """
        entry = self.entries.require(name)
        log_change("out of service", entry.task)
        self._metrics.remove_task(name)
        return self.entries.put(replace(entry, state="available", reason=None, task=None, wanted=False))

    def put(self, name: str, data: bytes, check: Callable[[], object] | None = None) -> Entry:
        """Puts the task of a file's bytes into service, and its file into the folder; all of it happens or nothing.

        check: called just before the file is written; what it raises keeps that from happening.

        What serves already stays what it is, with its generation and its folded weights.

        Raises:
            InvalidTaskError: if it cannot serve, with the reason.
            StorageError: if the file cannot be written, or the folder is gone.
        """
        entry = self._entry_or_new(name)
        same = entry.task_if_same(data)
        try:
            loaded = same or self._builder.build(entry, data)
        except FpetError as error:
            self._metrics.task_loads.labels("refused").inc()
            raise InvalidTaskError(log_failure(entry, error, refused=True)) from error
        except Exception:  # no fault of the client's
            self._metrics.task_loads.labels("failed").inc()
            raise
        if check is not None:
            check()
        if not (same and self._files.has(entry.path, data)):
            # Not of what lies there by now, which may be another's: that is yet to be looked at.
            self._looked_at.note(entry.path, self._files.write(entry.path, data))
        entry = replace(entry, wanted=True)
        if same:
            return self.entries.put(replace(entry, state="loaded", reason=None))
        return self._serve(entry, loaded, data)

    def delete(self, name: str) -> None:
        """Takes a task out of service and its file out of the folder.

        Raises:
            UnknownTaskError: if there is no such task.
            StorageError: if the file cannot be removed, or the folder is gone; the task then goes on serving.
        """
        entry = self.entries.require(name)
        self._files.remove(entry.path)
        self._drop(name)

    def unread(self, name: str) -> bool:
        """Whether the folder has a new or changed file of that name that was not looked at yet, or that may still be
        being written."""
        entry = self._entry_or_new(name)
        if status_of(entry.path) is None or not (entry.state == "loading" or self._looked_at.differs(entry.path)):
            return False
        try:
            return not entry.task_if_same(self._files.read(entry.path))  # the same if only its permissions changed
        except TaskError:
            return True

    def due(self) -> list[str]:
        """The tasks that are to be looked at: new files, and changed ones if they are wanted; and those that are gone,
        which are dropped.

        Raises:
            TaskError: if the folder cannot be listed; everything stays as it is.
        """
        paths = self._files.files()
        gone = sorted(self.entries.names() - paths.keys())
        for name in gone:
            self._drop(name)
        for name in paths.keys() - self.entries.names():
            self.entries.put(Entry(name, paths[name], "loading", wanted=True))
        return gone + [entry.name for entry in self.entries.all() if self._is_due(entry)]

    def reload_if_due(self, name: str) -> Entry | None:
        """Puts the file of a task into service if it is due, and returns what became of it; None if not.

        The same bytes again change nothing. A file may still be being written: that it cannot serve is reported only
        once two looks in a row find it unchanged, and until then it is `loading`.
        """
        entry = self.entries.find(name)
        if entry is None or not self._is_due(entry):
            return None
        return self._reload(entry, final=not self._looked_at.differs(entry.path))

    def _entry_or_new(self, name: str) -> Entry:
        """The task of that name, or else what it would begin as, which is none of the entries yet."""
        return self.entries.find(name) or Entry(name, self.folder / f"{name}{SUFFIX}")

    def _is_due(self, entry: Entry) -> bool:
        return entry.wanted and (entry.state == "loading" or self._looked_at.differs(entry.path))

    def _reload(self, entry: Entry, *, final: bool) -> Entry:
        """Reads a task's file, and builds the task unless its bytes are those that serve. final: nobody writes it."""
        entry = self._begin(entry)
        try:
            data = self._files.read(entry.path)
            # Written in place: it may be whole by its length, and half of the one before.
            if self._looked_at.differs(entry.path):
                raise TaskError(f"{entry.path}: the file changed while it was read")
            if entry.task_if_same(data):
                return self.entries.put(replace(entry, state="loaded"))
            built = self._builder.build(entry, data)
        except Exception as error:
            return self._end(entry, error) if final else entry
        return self._serve(entry, built, data)

    def _begin(self, entry: Entry) -> Entry:
        self._looked_at.look(entry.path)
        return self.entries.put(replace(entry, state="loading", reason=None, wanted=True))

    def _try(self, entry: Entry) -> LoadedTask | Exception:
        """What is to serve, or why it cannot; in any thread."""
        try:
            return self._builder.build(entry, self._files.read(entry.path))
        except Exception as error:  # whatever a file holds, it must not keep the others from serving
            return error

    def _end(self, entry: Entry, built: LoadedTask | Exception) -> Entry:
        if not isinstance(built, Exception):
            return self._serve(entry, built)
        self._metrics.task_loads.labels("failed").inc()
        if may_pass(entry, built):
            self._looked_at.forget(entry.path)  # so that the next looks try again
        return self.entries.put(replace(entry, state="failed", reason=log_failure(entry, built)))

    def _serve(self, entry: Entry, loaded: LoadedTask, data: bytes = b"", *, counted: bool = True) -> Entry:
        """counted: whether it was this process that was asked for it."""
        self.entries.note_new(loaded, data)
        self._builder.note_served(loaded)
        self._metrics.add_task(entry.name, loaded.size)
        if counted:
            self._metrics.task_loads.labels("loaded").inc()
        log_change("in service", loaded)
        return self.entries.put(replace(entry, state="loaded", reason=None, task=loaded))

    def _drop(self, name: str) -> None:
        entry = self.entries.remove(name)
        log_change("gone", entry.task)
        self._looked_at.forget(entry.path)
        self._metrics.remove_task(name)
