"""One process at a time for an output."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from fpet.errors import BusyError, TaskError
from fpet.files import remove_abandoned
from fpet.system_errors import os_errors_as

_ATTEMPTS = 100


@contextmanager
def sole_writer(output: Path, *, wait: bool = False) -> Iterator[None]:
    """Keeps all others who ask for the same from `output` during the block, by a lock on a hidden file beside it.

    The lock ends with the process, however that ends; a file that it then leaves is in nobody's way. On a file system
    without locks nobody is kept from anything. What killed processes left unfinished in the folder is removed.

    Raises:
        BusyError: if another process holds it and `wait` is false.
        TaskError: if the folder cannot be written.
    """
    path = output.with_name(f".{output.name}.lock")
    with os_errors_as(TaskError, f"{output}: cannot be written"):
        try:
            file = _locked(path, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BusyError(
                f"{output}: another process is writing it; wait for that, or name another output"
            ) from error
    with file:
        remove_abandoned(path.parent)
        try:
            yield
        finally:
            path.unlink(missing_ok=True)  # while it is locked, so that it is nobody else's


def _locked(path: Path, how: int) -> IO[bytes]:
    left = _ATTEMPTS
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            file = path.open("ab")
        except FileNotFoundError:  # who was alone in the folder has just removed it, or no file can be made there
            left -= 1
            if not left:
                raise
            continue
        try:
            fcntl.flock(file, how)
        except BlockingIOError:
            file.close()
            raise
        except OSError:  # there are no locks here
            return file
        # Between opening and locking its last holder may have removed it: then the next would make, and lock, another.
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                return file
        file.close()
