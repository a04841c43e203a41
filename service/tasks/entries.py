"""The entries of all tasks, by name; `service.catalog` changes them."""

from __future__ import annotations

from collections.abc import Set
from weakref import WeakSet

from service.errors import UnknownTaskError
from service.model.loaded import LoadedTask
from service.tasks.entry import Entry


class Entries:
    """Names to entries, each of which is replaced as a whole: readers in other threads see the old one or the new.

    keeps_content: whether the bytes of the file that was put into service last are kept, for `take_content`.
    """

    def __init__(self, entries: dict[str, Entry], keeps_content: bool) -> None:
        self._entries = entries
        self._keeps_content = keeps_content
        self._content: tuple[str, bytes] | None = None
        self._new: WeakSet[LoadedTask] = WeakSet()

    def all(self) -> list[Entry]:
        """All entries, by name."""
        entries = dict(self._entries)
        return [entries[name] for name in sorted(entries)]

    def names(self) -> Set[str]:
        """The names of all entries."""
        return self._entries.keys()

    def serving(self) -> list[LoadedTask]:
        """All tasks that answer, by name."""
        return [entry.task for entry in self.all() if entry.task]

    def find(self, name: str) -> Entry | None:
        """The entry of that name, or None if there is none."""
        return self._entries.get(name)

    def require(self, name: str) -> Entry:
        """The entry of that name.

        Raises:
            UnknownTaskError: if there is none.
        """
        if entry := self.find(name):
            return entry
        raise UnknownTaskError(f"there is no task {name!r}; GET /v1/tasks lists them")

    def loaded(self, name: str) -> LoadedTask:
        """The task of that name, ready to answer.

        Raises:
            UnknownTaskError: if there is none.
            NotReadyError: if it is not loaded, saying why.
        """
        return self.require(name).answering()

    def put(self, entry: Entry) -> Entry:
        """Puts an entry in the place of the one of its name, if there is one; returns it."""
        self._entries[entry.name] = entry
        return entry

    def remove(self, name: str) -> Entry:
        """Removes the entry of that name, which must be there; returns it."""
        return self._entries.pop(name)

    def note_new(self, task: LoadedTask, data: bytes) -> None:
        """Notes a task that is put into service; data: the bytes of its file, or none if they are not at hand."""
        if self._keeps_content:
            self._content = task.digest, data
        self._new.add(task)

    def take_new(self) -> list[LoadedTask]:
        """The tasks that were put into service since the last call, and still serve."""
        new = [task for task in self._new if (entry := self.find(task.header.name)) and entry.task is task]
        self._new.clear()
        return new

    def take_content(self, digest: str | None) -> bytes:
        """The bytes of the file with that digest, if it was put into service last and its bytes were not taken yet;
        else none."""
        content, self._content = self._content, None
        return content[1] if content and content[0] == digest else b""
