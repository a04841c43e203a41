"""Handwritten digits (UCI Optical Recognition of Handwritten Digits, test part), as scikit-learn ships them."""

from __future__ import annotations

import hashlib
from pathlib import Path

import torch

from fpet.data.sample import stratified_order
from fpet.data.split import TRAIN, VAL, Dataset, ImageTensor, Split
from fpet.errors import DataError

_TEST = 597  # 200 are left over
_WHITE = 16  # scikit-learn's pixels count the set bits of a 4x4 cell


def load_digits(folder: Path | None, cache: Path) -> Dataset:
    """800 training, 200 validation and 597 test images of 8x8 pixels; `cache` is not used.

    Raises:
        DataError: without scikit-learn, or if a folder is given.
    """
    del cache
    if folder is not None:
        raise DataError(f"the digits come with scikit-learn; nothing is read from {folder}")
    try:
        from sklearn import datasets  # noqa: PLC0415
    except ImportError as error:
        raise DataError("the digits come with scikit-learn: pip install scikit-learn") from error
    bunch = datasets.load_digits()
    pixels = torch.from_numpy(bunch.images * 255 / _WHITE).round().to(torch.uint8)
    targets = torch.from_numpy(bunch.target).long()
    order = stratified_order(targets)
    train, val, test = order[:TRAIN], order[TRAIN : TRAIN + VAL], order[-_TEST:]
    return Dataset(
        name="digits",
        labels=tuple("0123456789"),
        sha256=hashlib.sha256(pixels.numpy().tobytes() + targets.numpy().tobytes()).hexdigest(),
        train=Split(ImageTensor(pixels[train]), targets[train]),
        val=Split(ImageTensor(pixels[val]), targets[val]),
        test=Split(ImageTensor(pixels[test]), targets[test]),
        drawn=True,
    )
