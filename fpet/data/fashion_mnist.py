"""Fashion-MNIST (Xiao, Rasul and Vollgraf, 2017; MIT licence), as the Debian package dataset-fashion-mnist has it."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fpet.data.debian import unpack_package
from fpet.data.digest import sha256_of_files
from fpet.data.sample import stratified_order
from fpet.data.split import TRAIN, VAL, Dataset, ImageTensor, Split
from fpet.errors import DataError
from fpet.files import read_bytes

PACKAGE = "dataset-fashion-mnist"
LABELS = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)
SHA256 = {
    "train-images-idx3-ubyte.gz": "b0564c3eedabfbf835052cff8503ea422014ce006caf5b757f851416ee8300c7",
    "train-labels-idx1-ubyte.gz": "0ae29f65d86684f32d1b9c85147786c547b9c6aebcaf235f0400a0cce308b056",
    "t10k-images-idx3-ubyte.gz": "cc1d090a38ace84dfa1aa66e3ada7c336ef481a96936906477e6dd344da56eaa",
    "t10k-labels-idx1-ubyte.gz": "8d3605d196f4be44669e46906da9733c8131fef761fdbfec72c424d5222f1a05",
}
_INSTALLED = Path("/usr/share/datasets/fashion-mnist")


def load_fashion_mnist(folder: Path | None, cache: Path) -> Dataset:
    """800 training and 200 validation images of the 60,000 for training, and the official 10,000 test images.

    folder: where the four files lie; None reads the installed Debian package, else the cache, fetching it if needed.

    Raises:
        DataError: if the files cannot be had or are not the published ones.
    """
    files = _read_files(folder or _locate(cache))
    pixels, targets = _split(files, "train")
    order = stratified_order(targets)
    train, val = order[:TRAIN], order[TRAIN : TRAIN + VAL]
    test_pixels, test_targets = _split(files, "t10k")
    return Dataset(
        name="fashion-mnist",
        labels=LABELS,
        sha256=sha256_of_files(SHA256),
        train=Split(ImageTensor(pixels[train]), targets[train]),
        val=Split(ImageTensor(pixels[val]), targets[val]),
        test=Split(ImageTensor(test_pixels), test_targets),
    )


def read_idx(data: bytes) -> Tensor:
    """The array in an IDX file of bytes: two zeros, type 8 (uint8), number of axes, big-endian sizes, values."""
    axes = data[3]
    sizes = np.frombuffer(data, dtype=">u4", count=axes, offset=4).tolist()
    return torch.from_numpy(np.frombuffer(data, dtype=np.uint8, offset=4 + 4 * axes).reshape(sizes).copy())


def _locate(cache: Path) -> Path:
    if _INSTALLED.is_dir():
        return _INSTALLED
    package = cache / PACKAGE
    inside = _INSTALLED.relative_to("/")
    if not package.is_dir():
        try:
            unpack_package(PACKAGE, package, lambda files: _read_files(files / inside))
        except DataError as error:
            raise DataError(
                f"Fashion-MNIST is not here and cannot be fetched ({error}): run 'apt-get update' and "
                f"'apt-get install {PACKAGE}', or name a folder that holds {', '.join(SHA256)}"
            ) from error
    return package / inside


def _read_files(folder: Path) -> dict[str, bytes]:
    files = {}
    for name, expected in SHA256.items():
        files[name] = read_bytes(folder / name, DataError)
        if hashlib.sha256(files[name]).hexdigest() != expected:
            raise DataError(f"{folder / name} is not the published file: its SHA-256 should be {expected}")
    return files


def _split(files: dict[str, bytes], part: str) -> tuple[Tensor, Tensor]:
    images = read_idx(gzip.decompress(files[f"{part}-images-idx3-ubyte.gz"]))
    return images, read_idx(gzip.decompress(files[f"{part}-labels-idx1-ubyte.gz"])).long()
