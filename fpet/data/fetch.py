"""Fetching data with the machine's package managers."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from fpet.errors import DataError
from fpet.temporary import temporary_folder


@contextmanager
def arriving(destination: Path) -> Iterator[Path]:
    """Yields an empty folder, whose sub-folder `files` becomes `destination` unless the block raises.

    So the folder appears under its name only when it is complete, and a killed download leaves nothing that could be
    taken for the data.

    Raises:
        DataError: if the folder cannot be written.
    """
    try:
        destination.parent.mkdir(parents=True, exist_ok=True)
        with temporary_folder(destination.parent, f".{destination.name}-") as temporary:
            yield temporary
            (temporary / "files").rename(destination)
    except OSError as error:
        if not destination.is_dir():  # it is one if another process was faster
            raise DataError(f"cannot unpack into {destination}: {error}") from error


def run(command: Sequence[str], folder: Path, reason: tuple[str, ...] = ()) -> None:
    """Runs a command in a folder; raises DataError if it fails, with the line that it printed to say why.

    reason: what the first such line may begin with; it is the last of all otherwise.
    """
    line = f"'{' '.join(command)}'"
    if shutil.which(command[0]) is None:
        raise DataError(f"cannot run {line}: there is no {command[0]} on this machine")
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        printed = (done.stderr or done.stdout).strip().splitlines()
        last = printed[-1] if printed else f"exit code {done.returncode}"
        raise DataError(f"{line} failed: {next((one for one in printed if one.startswith(reason)), last)}")


def downloaded(folder: Path, suffix: str) -> Path:
    """The one file with that suffix that a download left in a folder; raises DataError if it left none."""
    path = next(folder.glob(f"*{suffix}"), None)
    if path is None:
        raise DataError(f"the download left no {suffix} file")
    return path
