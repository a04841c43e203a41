"""Which tasks there are, as others see them; `service.catalog` says what becomes of them."""

from __future__ import annotations

from weakref import WeakSet

from service.errors import UnknownTaskError
from service.model.loaded import LoadedTask
from service.tasks.entry import Entry


class Entries:
    """Names to entries, each of which is replaced as a whole: readers in other threads see the old one or the new.

    keeps_content: whether somebody takes the bytes of the files that are put into service.
    """

    def __init__(self, entries: dict[str, Entry], keeps_content: bool) -> None:
        self._entries = entries
        self._keeps_content = keeps_content
        self._content: tuple[str, bytes] | None = None
        self._new: WeakSet[LoadedTask] = WeakSet()

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
            UnknownTaskError: if there is none.
        """
        if entry := self.find(name):
            return entry
        raise UnknownTaskError(f"there is no task {name!r}; GET /v1/tasks lists them")

    def find(self, name: str) -> Entry | None:
        """The task of that name, or None if there is none."""
        return self._entries.get(name)

    def loaded(self, name: str) -> LoadedTask:
        """The task of that name, ready to answer.

        Raises:
            UnknownTaskError: if there is none.
            NotReadyError: if it is not loaded, saying why.
        """
        return self.entry(name).answering()

    def take_new(self) -> list[LoadedTask]:
        """What was put into service since this was called last, and still serves."""
        new = [task for task in self._new if (entry := self._entries.get(task.header.name)) and entry.task is task]
        self._new.clear()
        return new

    def take_content(self, digest: str | None) -> bytes:
        """The bytes of the file with that digest, if it is the one that was put into service last, and was not taken;
        else none."""
        content, self._content = self._content, None
        return content[1] if content and content[0] == digest else b""

    def _note(self, loaded: LoadedTask, data: bytes) -> None:
        """Told of what is put into service; data: the bytes of its file, if they are at hand."""
        if self._keeps_content:
            self._content = loaded.digest, data
        self._new.add(loaded)

    def _replace(self, entry: Entry) -> Entry:
        self._entries[entry.name] = entry
        return entry
