"""Folders for the time of a block; those that killed processes left are removed when the next is made."""

from __future__ import annotations

import fcntl
import glob
import logging
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

logger = logging.getLogger(__name__)

_LOCK = "lock"
_ABANDONED_SECONDS = 3600.0  # between its making and its lock there is a moment


@contextmanager
def temporary_folder(parent: Path, prefix: str) -> Iterator[Path]:
    """A new folder in `parent`, which only its user may enter, until the end of the block.

    Before, others of that prefix are removed if they are this user's, an hour old, and no process holds them. What
    cannot be removed stays.

    Raises:
        OSError: if it cannot be made.
    """
    _remove_abandoned(parent, prefix)
    with tempfile.TemporaryDirectory(prefix=prefix, dir=parent) as name, held(Path(name)):
        yield Path(name)


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Keeps others from taking the folder for abandoned, by a lock, until the block or the process ends; on a file
    system without locks they never take it for that."""
    with (folder / _LOCK).open("a") as lock:
        with suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_SH)
        yield


def _remove_abandoned(parent: Path, prefix: str) -> None:
    latest = time.time() - _ABANDONED_SECONDS
    for folder in parent.glob(f"{glob.escape(prefix)}*"):
        with suppress(OSError):
            status = folder.lstat()
            if stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and status.st_mtime <= latest:
                with (folder / _LOCK).open("r+") as lock:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(folder)
                logger.info("removed %s, left by a process that was killed", folder)
