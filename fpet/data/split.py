"""Labelled images: a split, and the three splits of a data set."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from fpet.data.prefetch import prefetched_batches
from fpet.errors import DataError
from fpet.preprocess import Preprocessing
from fpet.tensor_names import described

TRAIN, VAL = 800, 200  # pictures of each of our own data sets, as many as VTAB-1K's have
_RESIZED_AT_ONCE = 64


class Images(Protocol):
    """Pictures by index, decoded on access. Any thread may ask, several at once."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Tensor:
        """uint8 [3, h, w], h and w as the source has them.

        Raises:
            DataError: if the picture cannot be read.
        """
        ...


@dataclass(frozen=True)
class ImageTensor:
    """Pictures of one size; pixels: uint8 [N, 3, h, w], or [N, h, w] of grey, which becomes RGB by replication."""

    pixels: Tensor

    def __len__(self) -> int:
        return self.pixels.shape[0]

    def __getitem__(self, index: int, /) -> Tensor:
        return self.pixels[index].expand(3, -1, -1)


@dataclass(frozen=True)
class ResizedSplit:
    """Pictures at a model's input size; images: uint8 [N, 3, H, W], targets: int64 [N]."""

    images: Tensor
    targets: Tensor

    def __len__(self) -> int:
        return self.targets.shape[0]

    def to(self, device: torch.device) -> ResizedSplit:
        """The same on a device."""
        return ResizedSplit(self.images.to(device), self.targets.to(device))


@dataclass(frozen=True)
class Split:
    """Pictures with their classes; targets: int64 [N], indices into the data set's labels.

    What `resized` has made last is kept, so that the trainings of a search or of a sweep decode the pictures once.

    Raises:
        DataError: if there are not as many targets as pictures, or they are of another type.
    """

    images: Images
    targets: Tensor
    _made: dict[Preprocessing, ResizedSplit] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.targets.dtype != torch.int64 or self.targets.shape != (len(self.images),):
            count, given = len(self.images), described(self.targets)
            raise DataError(f"the targets of {count} pictures are int64 [{count}], not {given}")

    def __len__(self) -> int:
        return self.targets.shape[0]

    def check_targets(self, classes: int) -> None:
        """Raises DataError if a target is not one of 0 to `classes` - 1."""
        if not len(self):
            return
        least, most = (int(one) for one in self.targets.aminmax())
        if least < 0 or most >= classes:
            raise DataError(f"targets of {classes} classes are 0 to {classes - 1}, not {least if least < 0 else most}")

    def batches(self, preprocessing: Preprocessing, batch_size: int) -> Generator[tuple[Tensor, Tensor], None, None]:
        """Yields uint8 [B, 3, H, W] at the model's input size and targets int64 [B], in order.

        While one batch is used the next is decoded and resized, picture by picture, in threads, which end with the
        generator: a caller that stops early must close it.
        """

        def make(index: int) -> Tensor:
            return preprocessing.resize(self.images[index])

        with closing(prefetched_batches(make, len(self), batch_size)) as made:
            for number, images in enumerate(made):
                yield torch.stack(images), self.targets[number * batch_size :][: len(images)]

    def resized(self, preprocessing: Preprocessing) -> ResizedSplit:
        """All pictures at the model's input size, in memory; not to be written to."""
        made = self._made.get(preprocessing)
        if made is None:
            self._made.clear()  # before there are others: memory may not be enough for both
            made = self._made[preprocessing] = self._resize(preprocessing)
        return made

    def is_made(self, preprocessing: Preprocessing) -> bool:
        """Whether `resized` need not make them, and they take no more memory."""
        return preprocessing in self._made

    def _resize(self, preprocessing: Preprocessing) -> ResizedSplit:
        images = torch.empty(len(self), 3, *preprocessing.size, dtype=torch.uint8)
        with closing(self.batches(preprocessing, _RESIZED_AT_ONCE)) as batches:
            for number, (batch, _) in enumerate(batches):
                images[number * _RESIZED_AT_ONCE :][: len(batch)] = batch
        return ResizedSplit(images, self.targets)


@dataclass(frozen=True)
class Dataset:
    """A classification problem.

    labels: the class names. sha256: 64 hexadecimal digits that identify the source's files. train fits the weights,
    val chooses the epoch, test is looked at once; the three share no image. train and val are both empty for a folder
    that has only test/, read with `test_alone=True`; otherwise neither is. choices: by name, what chose the splits
    beside the files, such as a seed; fixed_test: whether the test images are the same for all choices, and are never
    among those that train or validate; drawn: whether splits were drawn at random, so that with a file more or less
    they are others. skipped: pictures that were left out and why, in words.

    Raises:
        DataError: if a target is no index into the labels.
    """

    name: str
    labels: tuple[str, ...]
    sha256: str
    train: Split
    val: Split
    test: Split
    choices: Mapping[str, int] = field(default_factory=dict)
    skipped: tuple[str, ...] = ()
    fixed_test: bool = False
    drawn: bool = False

    def __post_init__(self) -> None:
        for split in (self.train, self.val, self.test):
            split.check_targets(len(self.labels))
