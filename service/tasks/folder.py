"""The folder of task files: listing, reading, writing and removing them."""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from pathlib import Path

from fpet.errors import FpetError, TaskError
from fpet.files import read_regular, remove_abandoned, write_atomically
from service.errors import StorageError
from service.tasks.stamps import status_of

logger = logging.getLogger(__name__)

SUFFIX = ".safetensors"


def require_folder(path: Path) -> None:
    """Raises TaskError unless the task folder exists."""
    if path.is_file():
        raise TaskError(f"{path}: is a file; the task folder is the one that it lies in")
    if not path.is_dir():
        raise TaskError(f"{path}: the task folder does not exist")


class TaskFolder:
    """A folder whose task files are read and written as a whole. max_bytes: of a task file.

    Raises:
        TaskError: if the folder does not exist.
    """

    def __init__(self, path: Path, max_bytes: int) -> None:
        require_folder(path)
        self._path = path
        self._max_bytes = max_bytes
        self._device = path.stat().st_dev
        self._skipped: set[Path] = set()
        for left in remove_abandoned(path):
            logger.info("removed %s, left by a process that was killed while it wrote", left.name)

    def files(self) -> dict[str, Path]:
        """The task files, each by the name that its task must have.

        Raises:
            TaskError: if the folder cannot be listed or is not mounted, which says nothing about its files.
        """
        visible, self._device = self._listed()
        self._skipped.intersection_update(visible)  # of names that are gone nothing is kept
        return {path.stem: path for path in visible if self._can_be_told(path)}

    def find(self, name: str) -> Path | None:
        """The file of the task of that name, if it is there and the folder can be listed."""
        with suppress(TaskError):
            return self.files().get(name)
        return None

    def write(self, path: Path, data: bytes) -> os.stat_result:
        """Puts a file there, or in the place of another, and returns its status, as `write_atomically`.

        Raises:
            StorageError: if it cannot be written, or the folder is gone by now.
        """
        self.require()  # made anew, it would hold this file alone
        try:
            return write_atomically(path, data, TaskError, make_parents=False)
        except TaskError as error:
            logger.error("the task %s is not stored: %s", path.stem, error)
            raise StorageError(without_folder(path, error)) from error

    def has(self, path: Path, data: bytes) -> bool:
        """Whether the file there has these bytes; read, since a file system on a network may tell old stamps."""
        with suppress(TaskError):
            return self.read(path) == data
        return False

    def remove(self, path: Path) -> None:
        """Removes a file, if it is there.

        Raises:
            StorageError: if it cannot be removed, or the folder is gone by now: the file would come back with it.
        """
        self.require()
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise StorageError(f"{path.name}: cannot be removed: {error.strerror}") from error

    def require(self) -> None:
        """Raises StorageError if it is gone by now, or not mounted: a file would lie elsewhere than the others."""
        if not self._path.is_dir():
            raise StorageError("the task folder is gone")
        try:
            self._listed()
        except TaskError as error:
            raise StorageError(str(error).removeprefix(f"{self._path}: ")) from error

    def _listed(self) -> tuple[list[Path], int]:
        """The paths with the name of a task file, sorted, and the number of their file system.

        Raises:
            TaskError: if the folder cannot be listed, or has no task file and is of another file system than it was, as
                the place is that it was mounted at.
        """
        try:
            paths, device = sorted(self._path.iterdir()), self._path.stat().st_dev
        except OSError as error:
            raise TaskError(f"{self._path}: the task folder cannot be listed: {error.strerror}") from error
        visible = [path for path in paths if path.suffix == SUFFIX and not path.name.startswith(".")]
        if not visible and device != self._device:
            raise TaskError(f"{self._path}: the task folder has no tasks, and is of another file system than it was")
        return visible, device

    def read(self, path: Path) -> bytes:
        """The content of a task file.

        Raises:
            TaskError: if it cannot be read, is no regular file or too long.
        """
        status = status_of(path)
        if status is not None and status.st_size > self._max_bytes:
            raise TaskError(f"{path}: {status.st_size} bytes; the limit for a task file is {self._max_bytes}")
        return read_regular(path, TaskError)

    def _can_be_told(self, path: Path) -> bool:
        """Names of files may be any bytes; those that are not UTF-8 have no place in an answer."""
        try:
            path.name.encode()
        except UnicodeEncodeError:
            if path not in self._skipped:
                self._skipped.add(path)
                logger.warning("skipped the task file %a: its name is not UTF-8", path.name)
            return False
        return True


def without_folder(path: Path, error: FpetError) -> str:
    """What an error about a file says, to clients, who need not know where the folder lies."""
    return str(error).replace(str(path), path.name)
