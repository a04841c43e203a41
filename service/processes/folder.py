"""The folder in which the processes of a service have their sockets; what killed ones left goes with the next start."""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import socket
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from fpet.errors import UnsupportedError

logger = logging.getLogger(__name__)

_PREFIX = "fpet-serve-"
_LOCK = "lock"
_ABANDONED_SECONDS = 3600.0  # between its making and its lock there is a moment


@contextmanager
def socket_folder(count: int) -> Iterator[Path]:
    """A folder for so many sockets, which only its user may enter, until the end of the block.

    Raises:
        UnsupportedError: if there is no place for it, no locks are there, or its path is too long for those of sockets.
    """
    with ExitStack() as stack:
        try:
            _remove_abandoned(Path(tempfile.gettempdir()))
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=_PREFIX)))
            stack.enter_context(held(folder))
            _try_socket(folder / str(count - 1))
        except OSError as error:
            reason = error.strerror or error
            raise UnsupportedError(f"--processes: no sockets and locks in the folder of TMPDIR: {reason}") from error
        yield folder


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Nobody takes the folder for abandoned until the end of the block, or of the process."""
    with (folder / _LOCK).open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        yield


def _try_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(path))
    path.unlink()


def _remove_abandoned(parent: Path) -> None:
    """A folder is left alone unless it is this user's, an hour old, and no process holds it. What cannot be removed
    stays."""
    latest = time.time() - _ABANDONED_SECONDS
    for folder in parent.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            status = folder.lstat()
            if stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and status.st_mtime <= latest:
                with (folder / _LOCK).open("r+") as lock:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(folder)
                logger.info("removed %s, left by a service that was killed", folder)
