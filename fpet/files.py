"""Reading files whole, and writing files and folders so that a half-written one is never seen."""

from __future__ import annotations

import csv
import fcntl
import io
import os
import secrets
import stat
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from fpet.errors import FpetError
from fpet.system_errors import os_errors_as
from fpet.temporary import temporary_folder

_CSV_END = "\r\n"
_UNFINISHED = ".fpet-unfinished"
_NAME_BYTES = 200
_ABANDONED_SECONDS = 3600.0  # writing takes seconds


def exists(path: Path, error: type[FpetError]) -> bool:
    """Whether there is such a file or folder; raises `error` if that cannot be told, as of a name that is too long."""
    with os_errors_as(error, f"{path}: cannot be looked for"):
        return path.exists()


def read_bytes(path: Path, error: type[FpetError]) -> bytes:
    """The file's content, read once; raises `error` if it cannot be."""
    with os_errors_as(error, f"{path}: cannot be read"):
        return path.read_bytes()


def read_regular(path: Path, error: type[FpetError]) -> bytes:
    """As `read_bytes`, but refuses a pipe or a device, whose opening may wait for a writer."""
    _refuse_special(path, error)
    return read_bytes(path, error)


def require_regular(path: Path, error: type[FpetError]) -> None:
    """Raises what `read_regular` would, but reads nothing."""
    _refuse_special(path, error)
    with os_errors_as(error, f"{path}: cannot be read"):
        path.open("rb").close()


def _refuse_special(path: Path, error: type[FpetError]) -> None:
    with suppress(OSError):  # which reading says too
        if not stat.S_ISREG(path.stat().st_mode):
            raise error(f"{path}: cannot be read: it is not a regular file")


def read_lines(path: Path, error: type[FpetError]) -> list[tuple[int, str]]:
    """(number from 1, stripped text) of each line of a file that is not blank; a byte order mark is left out.

    Raises:
        `error`: if the file cannot be read or is not UTF-8.
    """
    try:
        text = read_bytes(path, error).decode("utf-8-sig")
    except UnicodeDecodeError as cause:
        raise error(f"{path} is not text in UTF-8: {cause}") from cause
    return [(number, line.strip()) for number, line in enumerate(text.split("\n"), start=1) if line.strip()]


def write_atomically(path: Path, data: bytes, error: type[FpetError], *, make_parents: bool = True) -> os.stat_result:
    """Writes beside `path`, syncs and renames: a reader sees the old content or the new, never a part, and the new one
    from then on, through a power cut too.

    Returns the status of the written file under its name, even if others write to it or replace it before `path` could
    be looked at. make_parents: makes the folders that it lies in where they are missing.

    Raises:
        `error`: if the disk is full or the folder cannot be written; the old content stays.
    """
    unfinished: Path | None = None
    try:
        with os_errors_as(error, f"{path}: cannot be written"):
            if make_parents:
                path.parent.mkdir(parents=True, exist_ok=True)
            beside = _beside(path)
            # With the permissions of any new file; fails if the name is taken.
            opened = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
            unfinished = beside
            with os.fdopen(opened, "wb", buffering=0) as file:  # after an error nothing is left to be written
                with suppress(OSError):  # on a file system without locks it counts as held for ever
                    fcntl.flock(file, fcntl.LOCK_EX)
                left = memoryview(data)
                while left:
                    left = left[file.write(left) :]
                os.fsync(file.fileno())
                written = os.fstat(file.fileno())
                unfinished.replace(path)
                unfinished = None
                named = os.fstat(file.fileno())  # to get a name is a change of status
    finally:  # around the handling of an error, during which an interrupt may come
        if unfinished is not None:
            with suppress(OSError):  # e.g. the file system became read-only: keep the first error
                unfinished.unlink(missing_ok=True)
    _sync_names(path.parent)
    return named if named.st_mtime_ns == written.st_mtime_ns else written


def _beside(path: Path) -> Path:
    """A hidden name that nobody else has, of as much of the path's name as fits into the 255 bytes of one."""
    name = os.fsdecode(os.fsencode(path.name)[:_NAME_BYTES])
    return path.parent / f".{name}.{secrets.token_hex(8)}{_UNFINISHED}"


def _sync_names(folder: Path) -> None:
    """Syncs which names there are in a folder, if its file system can."""
    with suppress(OSError):
        opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)


def make_folder(path: Path, error: type[FpetError]) -> None:
    """Makes a folder, with those that it lies in, if there is none; raises `error` if it cannot be made."""
    with os_errors_as(error, f"{path}: cannot be written"):
        path.mkdir(parents=True, exist_ok=True)


def write_folder(path: Path, files: Mapping[str, bytes], error: type[FpetError]) -> None:
    """Writes the files beside `path` and renames their folder; `path` itself must not exist.

    Raises:
        `error`: if the folder cannot be written; nothing is left of it.
    """
    with os_errors_as(error, f"{path}: cannot be written"):
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary_folder(path.parent, f".{path.name}.") as temporary:
            folder = temporary / "files"
            folder.mkdir()  # with the permissions that any new folder has
            for name, data in files.items():
                (folder / name).write_bytes(data)
            folder.rename(path)


def write_csv(path: Path, columns: Iterable[str], rows: Iterable[Iterable[object]], error: type[FpetError]) -> None:
    """Writes a table with a heading, as `write_atomically`; None is an empty field."""
    table = "".join(map(_csv_line, [columns, *rows]))
    # The name of a file may be no UTF-8: its bytes are written as they are.
    write_atomically(path, table.encode(errors="surrogateescape"), error)


def _csv_line(fields: Iterable[object]) -> str:
    """A field with a carriage return is quoted, as Python 3.11 does only where that is part of the line's end."""
    line = io.StringIO()
    csv.writer(line, lineterminator=_CSV_END).writerow(fields)
    return f"{line.getvalue().removesuffix(_CSV_END)}\n"


def remove_abandoned(folder: Path) -> list[Path]:
    """Removes from a folder what `write_atomically` left there in processes that were killed; returns what it removed.

    A file is left alone unless it has the name that only `write_atomically` gives, is an hour old, and has no lock,
    which it keeps until its writer ends. The age is for network file systems that do not tell other machines of locks.
    What cannot be removed stays.
    """
    latest = time.time() - _ABANDONED_SECONDS
    return [path for path in sorted(folder.glob(f".*{_UNFINISHED}")) if _remove_unlocked(path, latest)]


def _remove_unlocked(path: Path, latest: float) -> bool:
    """Whether a file that did not change after that time had no lock and is removed."""
    with suppress(OSError):
        status = path.lstat()
        if stat.S_ISREG(status.st_mode) and status.st_mtime <= latest:
            with path.open("r+b") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
                return True
    return False
