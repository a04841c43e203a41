"""Data that Debian packages carry, fetched by the machine's own package manager."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fpet.data.fetch import arriving, downloaded, run
from fpet.errors import DataError


def unpack_package(package: str, destination: Path, check: Callable[[Path], object]) -> None:
    """Downloads a Debian package (apt verifies its signature) and unpacks its files into the folder `destination`.

    The folder appears under its name only when it is complete and `check(folder)` has not raised.

    Raises:
        DataError: if there is no apt, the package cannot be had, or the folder cannot be written.
    """
    with arriving(destination) as folder:
        run(["apt-get", "download", package], folder)
        run(["dpkg-deb", "-x", downloaded(folder, ".deb").name, "files"], folder)
        check(folder / "files")


def package_folder(package: str, inside: str, folder: Path | None, cache: Path) -> Path:
    """The folder `inside` of a Debian package, such as "usr/share/icons/gnome".

    folder: what the package is unpacked in, `/` where it is installed; None reads `cache`, fetching it if needed.

    Raises:
        DataError: if the package cannot be had or has no such folder.
    """
    root = folder or cache / package
    if folder is None and not root.is_dir():
        try:
            unpack_package(package, root, lambda files: _require(files / inside, package))
        except DataError as error:
            raise DataError(
                f"the Debian package {package} is not here and cannot be fetched ({error}): run 'apt-get update', or "
                "unpack it and name the folder (/ if it is installed)"
            ) from error
    return _require(root / inside, package)


def _require(folder: Path, package: str) -> Path:
    if not folder.is_dir():
        raise DataError(f"there is no {folder}, which the Debian package {package} should have")
    return folder
