"""Data sets made of picture files that lie in several packages."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Sequence, Sized
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from fpet.data.digest import sha256_of_files
from fpet.data.pictures import SPLITS, ImageFiles
from fpet.data.split import TRAIN, VAL, Dataset, Split
from fpet.errors import DataError
from fpet.files import read_bytes

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
LARGEST = 16_000_000  # pixels; the few larger pictures are patterns, which take seconds each


@dataclass(frozen=True)
class Drawing:
    """A PNG file and its class.

    target: index into the labels. name: what it is called in the data set, whatever folder it lies in. group: drawings
    of one group are on the same side of a split.
    """

    path: Path
    target: int
    name: str
    group: str = ""


def distinct(drawings: Iterable[Drawing], smallest: int = 1) -> list[Drawing]:
    """The drawings without those that repeat the pixels of an earlier one, are of one colour, or do not decode.

    smallest: the least width and height, in pixels. Those of more than 16 million pixels are left out.
    """
    kept: dict[bytes, Drawing] = {}
    drawings = list(drawings)
    with ThreadPoolExecutor() as threads:  # decoding holds no lock of Python's
        looks = threads.map(lambda drawing: _look(drawing.path, smallest), drawings)
        for drawing, look in zip(drawings, looks, strict=True):
            if look:
                kept.setdefault(look, drawing)
    return list(kept.values())


def targets_of(drawings: Sequence[Drawing]) -> Tensor:
    """The classes, int64 [N]."""
    return torch.tensor([drawing.target for drawing in drawings], dtype=torch.int64)


def refuse_shortage(name: str, splits: Sequence[Sized]) -> None:
    """Raises DataError unless training, validation and test have TRAIN, VAL and at least one picture."""
    for split, pictures, least in zip(SPLITS, splits, (TRAIN, VAL, 1), strict=True):
        if len(pictures) < least:
            raise DataError(f"{name}: the packages have too few pictures: {len(pictures)} of {least} for {split}")


def to_dataset(
    name: str, labels: tuple[str, ...], splits: Sequence[Sequence[Drawing]], *, fixed_test: bool = False
) -> Dataset:
    """The data set of the training, validation and test drawings; fixed_test: as of `Dataset`.

    Its SHA-256 is `sha256_of_files` of the drawings, each named `<split>/<label>/<name>`.

    Raises:
        DataError: if a file cannot be read, or there are too few drawings.
    """
    refuse_shortage(name, splits)
    digests = {
        f"{split}/{labels[drawing.target]}/{drawing.name}": hashlib.sha256(
            read_bytes(drawing.path, DataError)
        ).hexdigest()
        for split, drawings in zip(SPLITS, splits, strict=True)
        for drawing in drawings
    }
    train, val, test = (
        Split(ImageFiles(tuple(drawing.path for drawing in drawings)), targets_of(drawings)) for drawings in splits
    )
    sha256 = sha256_of_files(digests)
    return Dataset(name, labels, sha256, train, val, test, fixed_test=fixed_test, drawn=True)


def _look(path: Path, smallest: int) -> bytes:
    """A checksum of the pixels as a model sees them, or nothing if the picture is not to be used."""
    size = _png_size(path)
    if size is None or min(size) < smallest or size[0] * size[1] > LARGEST:
        return b""
    try:
        pixels = ImageFiles((path,))[0]
    except DataError:
        return b""
    if (pixels == pixels[:, :1, :1]).all():
        return b""
    return hashlib.sha256(repr(size).encode() + pixels.numpy().tobytes()).digest()


def _png_size(path: Path) -> tuple[int, int] | None:
    """Width and height in the header of a PNG file, read without Pillow, which warns of the largest."""
    try:
        with path.open("rb") as file:
            head = file.read(24)
    except OSError:
        return None
    if len(head) < 24 or not head.startswith(_SIGNATURE):
        return None
    width, height = struct.unpack(">II", head[16:])
    return width, height
