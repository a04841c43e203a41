"""Pictures no two of which are alike, and what is asked of data sets made of them."""

from __future__ import annotations

import random
from itertools import combinations
from pathlib import Path

import numpy as np
from picture_files import everything
from PIL import Image

from fpet.data import Dataset, Split
from fpet.data.pictures import ImageFiles

SIZES = [800, 200]  # of every training and validation set


def noise(path: Path, side: int = 8) -> Path:
    """Writes a picture that no other path has."""
    pixels = np.random.default_rng(random.Random(str(path)).getrandbits(32)).integers(256, size=(side, side, 3))
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels.astype(np.uint8)).save(path, compress_level=0)
    return path


def sizes(data: Dataset) -> list[int]:
    """Pictures in training, validation and test."""
    return [len(split) for split in (data.train, data.val, data.test)]


def paths(split: Split) -> list[Path]:
    """The files of a split."""
    assert isinstance(split.images, ImageFiles)
    return list(split.images.paths)


def labels(data: Dataset, split: Split) -> list[str]:
    """The class names of a split's pictures."""
    return [data.labels[target] for target in split.targets]


def share_pictures(data: Dataset) -> bool:
    """Whether any two splits have the same picture: the same file's content, or equal pixels of what is no file."""
    contents = [_contents(split) for split in (data.train, data.val, data.test)]
    return any(first & second for first, second in combinations(contents, 2))


def _contents(split: Split) -> set[bytes]:
    if isinstance(split.images, ImageFiles):
        return {path.read_bytes() for path in split.images.paths}
    return set(everything(split))
