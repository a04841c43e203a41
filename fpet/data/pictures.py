"""Picture files: decoded on access, checked before anything is trained on them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from tqdm import tqdm

from fpet.data.digest import sha256_of_files
from fpet.data.split import Dataset, Split
from fpet.errors import DataError
from fpet.image_files import UNREADABLE, open_image, read_image, reason
from fpet.images import to_rgb
from fpet.words import count, first

SPLITS = ("train", "val", "test")


@dataclass(frozen=True)
class LabelledFile:
    """A picture's file and its class; target: index into the labels; listed: the line of the list that names it."""

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
            return read_image(path)
        except UNREADABLE as error:
            raise DataError(f"cannot read the image {path}: {reason(error)}") from error


@dataclass(frozen=True)
class Checked:
    """What a look at every file found; digests: SHA-256 of those that decode; broken: the others and why, in words."""

    digests: Mapping[Path, str]
    broken: tuple[str, ...]

    def left(self, pictures: Iterable[LabelledFile]) -> list[LabelledFile]:
        """Those that decode."""
        return [picture for picture in pictures if picture.path in self.digests]


def check_pictures(root: Path, pictures: Iterable[LabelledFile], *, skip_broken: bool) -> Checked:
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


def copies(root: Path, splits: Mapping[str, Iterable[LabelledFile]], checked: Checked) -> list[str]:
    """The pictures that an earlier split has too, byte by byte, each with the one there, in words."""
    seen: dict[str, tuple[str, Path]] = {}
    found: dict[Path, str] = {}  # a list may name a picture twice
    for split, pictures in splits.items():
        for picture in checked.left(pictures):
            other, path = seen.setdefault(checked.digests[picture.path], (split, picture.path))
            if other != split:
                found[picture.path] = f"{path.relative_to(root)} and {picture.path.relative_to(root)}"
    return list(found.values())


def refuse_gaps(root: Path, labels: Sequence[str], training: Iterable[LabelledFile]) -> None:
    """Raises DataError if there is a class without a training picture."""
    missing = set(range(len(labels))) - {picture.target for picture in training}
    if missing:
        names = first(labels[target] for target in sorted(missing))
        raise DataError(f"{root}: {len(missing)} of {len(labels)} classes have no training image: {names}")


def to_dataset(
    root: Path,
    labels: tuple[str, ...],
    splits: Mapping[str, Sequence[LabelledFile]],
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
    name, drawn = root.resolve().name, "split_seed" in choices
    return Dataset(name, labels, sha256, train, val, test, choices, checked.broken, fixed_test, drawn)


def _split(pictures: Sequence[LabelledFile]) -> Split:
    paths = tuple(picture.path for picture in pictures)
    return Split(ImageFiles(paths), torch.tensor([picture.target for picture in pictures], dtype=torch.int64))


def _look(path: Path) -> tuple[str, str]:
    """SHA-256 of a picture's file and what is wrong with it, or the empty string."""
    try:
        if not path.is_file():
            return "", "this is no file" if path.exists() else "there is no such file"
        with path.open("rb") as file:  # not read whole: what lies beside pictures may be films
            with open_image(file) as image:
                image.draft(None, (1, 1))  # reads all of a JPEG, but makes an eighth of its pixels a side
                to_rgb(image)
            file.seek(0)
            return hashlib.file_digest(file, "sha256").hexdigest(), ""
    except UNREADABLE as error:
        return "", reason(error)
