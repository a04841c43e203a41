"""Stamps of files, by which a change of a file is noticed without reading it."""

from __future__ import annotations

import os
from pathlib import Path

# A file's time of change, length and inode, and the time at which anything about it changed. That last one alone tells
# versions apart that have one length and one time of change, as those of reproducible archives do, where one is written
# over the other or gets its inode.
_Stamp = tuple[int, int, int, int]


class Stamps:
    """The stamps of files when they were last looked at."""

    def __init__(self) -> None:
        self._then: dict[Path, _Stamp | None] = {}

    def look(self, path: Path) -> None:
        """Notes the stamp that the file has now."""
        self._then[path] = _stamp(status_of(path))

    def note(self, path: Path, status: os.stat_result) -> None:
        """Notes the stamp of this status, whichever file lies there by now."""
        self._then[path] = _stamp(status)

    def forget(self, path: Path) -> None:
        """Forgets what was noted, as if it had never been looked at."""
        self._then.pop(path, None)

    def differs(self, path: Path) -> bool:
        """Whether the file's stamp differs from the one noted: it was replaced, written, created or removed, or its
        permissions changed."""
        return _stamp(status_of(path)) != self._then.get(path)


def status_of(path: Path) -> os.stat_result | None:
    """The status of a file; None if there is none or it cannot be read."""
    try:
        return path.stat()
    except (OSError, ValueError):  # the second for a name that no file can have
        return None


def _stamp(status: os.stat_result | None) -> _Stamp | None:
    return status and (status.st_mtime_ns, status.st_size, status.st_ino, status.st_ctime_ns)
