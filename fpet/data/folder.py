"""A user's own pictures: train/, val/ and test/, each with one folder a class."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor

from fpet.data.digest import sha256_of_files
from fpet.data.split import Dataset, Split
from fpet.errors import DataError, ImageError
from fpet.files import read_bytes
from fpet.images import to_rgb

_SPLITS = ("train", "val", "test")


@dataclass(frozen=True)
class ImageFiles:
    """Picture files, decoded on access as the service decodes them."""

    paths: tuple[Path, ...]

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int, /) -> Tensor:
        path = self.paths[index]
        try:
            with Image.open(path) as image:
                return to_rgb(image)
        except (ImageError, OSError, Image.DecompressionBombError) as error:
            raise DataError(f"cannot read the image {path}: {error}") from error


def load_folder(root: Path) -> Dataset:
    """The data set in a folder: `train/<class>/*`, `val/<class>/*` and `test/<class>/*`, every file a picture.

    Classes are the sorted folder names of train/; hidden files are ignored.

    Raises:
        DataError: if a split is missing or empty, or has a class that train/ lacks, or there are not two classes.
    """
    labels = tuple(path.name for path in _visible(root / "train") if path.is_dir())
    if len(labels) < 2:
        raise DataError(f"{root / 'train'} has {len(labels)} class folders: a classification needs two")
    files = {split: _files(root / split, labels) for split in _SPLITS}
    digests = {
        path.relative_to(root).as_posix(): hashlib.sha256(read_bytes(path, DataError)).hexdigest()
        for paths in files.values()
        for path in paths
    }
    train, val, test = (_split(files[split], labels) for split in _SPLITS)
    return Dataset(root.resolve().name, labels, sha256_of_files(digests), train, val, test)


def _visible(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise DataError(f"there is no folder {folder}: a data folder has train/, val/ and test/")
    return sorted(path for path in folder.iterdir() if not path.name.startswith("."))


def _files(folder: Path, labels: tuple[str, ...]) -> list[Path]:
    paths = []
    for label in _visible(folder):
        if label.name not in labels or not label.is_dir():
            raise DataError(f"{label} is not a class folder: the classes in train/ are {', '.join(labels)}")
        paths += _visible(label)
    if not paths:
        raise DataError(f"{folder} holds no images: expected {folder.name}/<class>/<image>")
    return paths


def _split(paths: list[Path], labels: tuple[str, ...]) -> Split:
    index = {label: i for i, label in enumerate(labels)}
    return Split(ImageFiles(tuple(paths)), torch.tensor([index[path.parent.name] for path in paths]))
