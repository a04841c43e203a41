"""Data that Debian packages carry, fetched by the machine's own package manager."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from fpet.errors import DataError


def unpack_package(package: str, destination: Path, check: Callable[[Path], object]) -> None:
    """Downloads a Debian package (apt verifies its signature) and unpacks its files into the folder `destination`.

    The folder appears under its name only when it is complete and `check(folder)` has not raised, so that a killed
    download leaves nothing that could be taken for the data.

    Raises:
        DataError: if there is no apt, the package cannot be had, or the folder cannot be written.
    """
    try:
        destination.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{destination.name}-", dir=destination.parent) as temporary:
            folder = Path(temporary)
            _run(["apt-get", "download", package], folder)
            _run(["dpkg-deb", "-x", next(folder.glob("*.deb")).name, "files"], folder)
            check(folder / "files")
            (folder / "files").rename(destination)
    except OSError as error:
        if not destination.is_dir():  # it is one if another process was faster
            raise DataError(f"cannot unpack the Debian package {package} into {destination}: {error}") from error


def _run(command: Sequence[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines()
        reason = lines[-1] if lines else f"exit code {done.returncode}"
        raise DataError(f"'{' '.join(command)}' failed: {reason}")
