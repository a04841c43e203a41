"""What files look like from outside, by which it is noticed that one changed."""

from __future__ import annotations

import os
from pathlib import Path

# A file's time of change, length and inode, and the time at which anything about it changed. That last one alone tells
# versions apart that have one length and one time of change, as those of reproducible archives do, where one is written
# over the other or gets its inode.
_Stamp = tuple[int, int, int, int]


class Stamps:
    """What files looked like when they were last looked at."""

    def __init__(self) -> None:
        self._then: dict[Path, _Stamp | None] = {}

    def look(self, path: Path) -> None:
        """Notes what the file looks like now."""
        self._then[path] = _stamp(status_of(path))

    def note(self, path: Path, status: os.stat_result) -> None:
        """Notes that it looked so, whichever file lies there by now."""
        self._then[path] = _stamp(status)

    def forget(self, path: Path) -> None:
        """Forgets what was noted, as if it had never been looked at."""
        self._then.pop(path, None)

    def differs(self, path: Path) -> bool:
        """Whether it may be another file than was noted, or something about it changed, as who may read it; or whether
        it was not there then or is not any more."""
        return _stamp(status_of(path)) != self._then.get(path)


def status_of(path: Path) -> os.stat_result | None:
    """What the system says of a file; None if it cannot be looked at."""
    try:
        return path.stat()
    except (OSError, ValueError):  # the second for a name that no file can have
        return None


def _stamp(status: os.stat_result | None) -> _Stamp | None:
    return status and (status.st_mtime_ns, status.st_size, status.st_ino, status.st_ctime_ns)
