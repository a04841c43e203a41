"""Picture files: decoded on access, checked before anything is trained on them."""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor
from tqdm import tqdm

from fpet.data.digest import sha256_of_files
from fpet.data.split import Dataset, Split
from fpet.errors import DataError, ImageError
from fpet.images import to_rgb
from fpet.orientation import BROKEN
from fpet.words import count, first

SPLITS = ("train", "val", "test")

# Pillow raises NotImplementedError for variants of a format that it does not know.
_BROKEN = (ImageError, *BROKEN, Image.DecompressionBombError)

# Brands of ISO base media files (ISO/IEC 23008-12, annex B; AVIF 1.1): what phones write, and Pillow may not read.
_HEIC = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx")
_BRANDS = {**dict.fromkeys(_HEIC, "HEIC"), b"mif1": "HEIF", b"msf1": "HEIF", b"avif": "AVIF", b"avis": "AVIF"}


@dataclass(frozen=True)
class Picture:
    """A picture file and its class; target: index into the labels; listed: the line of the list that names it."""

    path: Path
    target: int
    listed: str = ""


@dataclass(frozen=True)
class ImageFiles:
    """Picture files, decoded on access as the service decodes them."""

    paths: tuple[Path, ...]

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int, /) -> Tensor:
        path = self.paths[index]
        try:
            if is_special(path):
                raise ImageError("this is no file")
            with path.open("rb") as file, _open(file) as image:
                return to_rgb(image)
        except _BROKEN as error:
            raise DataError(f"cannot read the image {path}: {_reason(error)}") from error


def is_special(path: Path) -> bool:
    """Whether it is a pipe, a socket or a device, on which opening or reading may block for ever."""
    try:
        mode = path.stat().st_mode
    except OSError:  # opening it will say why
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


@dataclass(frozen=True)
class Checked:
    """What a look at every file found; digests: SHA-256 of those that decode; broken: the others and why, in words."""

    digests: Mapping[Path, str]
    broken: tuple[str, ...]

    def left(self, pictures: Iterable[Picture]) -> list[Picture]:
        """Those that decode."""
        return [picture for picture in pictures if picture.path in self.digests]


def check_pictures(root: Path, pictures: Iterable[Picture], *, skip_broken: bool) -> Checked:
    """Reads and decodes every picture once, so that none fails after hours of training.

    Raises:
        DataError: if pictures are missing or do not decode, naming the first ten, unless skip_broken.
    """
    digests: dict[Path, str] = {}
    broken: dict[Path, str] = {}
    files = {picture.path: picture for picture in pictures}  # a list may name a picture twice
    with ThreadPoolExecutor() as threads:  # decoding holds no lock of Python's
        looks = tqdm(threads.map(_look, files), "checking pictures", len(files), leave=False, disable=None)
        for path, (digest, fault) in zip(files, looks, strict=True):
            if fault:
                listed = f" ({files[path].listed})" if files[path].listed else ""
                broken[path] = f"{path.relative_to(root)}{listed}: {fault}"
            else:
                digests[path] = digest
    if broken and not skip_broken:
        raise DataError(
            f"{root}: {len(broken)} of {count(len(files), 'picture')} cannot be read (--skip-broken, in Python and in "
            "plans skip_broken, leaves them out; "
            "what is no image may also be moved elsewhere): "
            f"{first(broken.values(), '; ')}"
        )
    return Checked(digests, tuple(broken.values()))


def copies(root: Path, splits: Mapping[str, Iterable[Picture]], checked: Checked) -> list[str]:
    """The pictures that an earlier split has too, byte by byte, each with the one there, in words."""
    seen: dict[str, tuple[str, Path]] = {}
    found: dict[Path, str] = {}  # a list may name a picture twice
    for split, pictures in splits.items():
        for picture in checked.left(pictures):
            other, path = seen.setdefault(checked.digests[picture.path], (split, picture.path))
            if other != split:
                found[picture.path] = f"{path.relative_to(root)} and {picture.path.relative_to(root)}"
    return list(found.values())


def refuse_gaps(root: Path, labels: Sequence[str], training: Iterable[Picture]) -> None:
    """Raises DataError if there is a class without a training picture."""
    missing = set(range(len(labels))) - {picture.target for picture in training}
    if missing:
        names = first(labels[target] for target in sorted(missing))
        raise DataError(f"{root}: {len(missing)} of {len(labels)} classes have no training image: {names}")


def to_dataset(
    root: Path,
    labels: tuple[str, ...],
    splits: Mapping[str, Sequence[Picture]],
    checked: Checked,
    choices: Mapping[str, int],
    *,
    fixed_test: bool = False,
) -> Dataset:
    """The data set of those pictures that decode; choices, fixed_test: as of `Dataset`.

    splits: pictures by a name of SPLITS; one that is not there is empty. The SHA-256 is `sha256_of_files` of all
    digests, by path below `root`.

    Raises:
        DataError: if a split is empty.
    """
    left = {name: checked.left(pictures) for name, pictures in splits.items()}
    for name, pictures in left.items():
        if not pictures:
            raise DataError(f"{root}: no {name} images")
    digests = {path.relative_to(root).as_posix(): digest for path, digest in checked.digests.items()}
    train, val, test = (_split(left.get(name, ())) for name in SPLITS)
    sha256 = sha256_of_files(digests)
    return Dataset(root.resolve().name, labels, sha256, train, val, test, choices, checked.broken, fixed_test)


def _split(pictures: Sequence[Picture]) -> Split:
    paths = tuple(picture.path for picture in pictures)
    return Split(ImageFiles(paths), torch.tensor([picture.target for picture in pictures], dtype=torch.int64))


def _look(path: Path) -> tuple[str, str]:
    """SHA-256 of a picture's file and what is wrong with it, or the empty string."""
    try:
        if not path.is_file():
            return "", "this is no file" if path.exists() else "there is no such file"
        with path.open("rb") as file:  # not read whole: what lies beside pictures may be films
            with _open(file) as image:
                image.draft(None, (1, 1))  # reads all of a JPEG, but makes an eighth of its pixels a side
                to_rgb(image)
            file.seek(0)
            return hashlib.file_digest(file, "sha256").hexdigest(), ""
    except _BROKEN as error:
        return "", _reason(error)


def _open(file: IO[bytes]) -> Image.Image:
    """As `Image.open`, but says what a file is that Pillow does not recognise.

    Raises:
        ImageError: if Pillow does not recognise it.
    """
    try:
        return Image.open(file)
    except UnidentifiedImageError as error:
        file.seek(0)
        beginning = file.read(12)
        brand = _BRANDS.get(beginning[8:]) if beginning[4:8] == b"ftyp" else None
        if brand:
            raise ImageError(f"this {brand} file cannot be read here; convert it to JPEG or PNG") from error
        raise ImageError("this is in no picture format that is read here") from error


def _reason(error: Exception) -> str:
    """What is wrong with a picture, without its path, which stands before it."""
    if isinstance(error, Image.DecompressionBombError) and Image.MAX_IMAGE_PIXELS is not None:
        return f"it has more than {2 * Image.MAX_IMAGE_PIXELS} pixels; make it smaller"
    return (isinstance(error, OSError) and error.strerror) or str(error)
