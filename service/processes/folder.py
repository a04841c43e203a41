"""The folder in which the processes of a service have their sockets."""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from fpet.errors import UnsupportedError
from fpet.temporary import temporary_folder

_PREFIX = "fpet-serve-"


@contextmanager
def socket_folder(count: int) -> Iterator[Path]:
    """A folder for so many sockets, which only its user may enter, until the end of the block.

    Raises:
        UnsupportedError: if there is no place for it, or its path is too long for those of sockets.
    """
    with ExitStack() as stack:
        try:
            folder = stack.enter_context(temporary_folder(Path(tempfile.gettempdir()), _PREFIX))
            _try_socket(folder / str(count - 1))
        except OSError as error:
            reason = error.strerror or error
            raise UnsupportedError(f"--processes: no sockets in the folder of TMPDIR: {reason}") from error
        yield folder


def _try_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(path))
    path.unlink()
