"""From a way to draw pictures with given targets to a data set."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fpet.data.sample import stratified_order
from fpet.data.split import TRAIN, VAL, Dataset, ImageTensor, Split
from fpet.errors import DataError

SIZES = (TRAIN, VAL, 2000)


@dataclass(frozen=True)
class Scenes:
    """A data set that is drawn when it is needed: 800 training, 200 validation and 2,000 test pictures.

    summary: what is to be told apart, in a few words. draw: targets, each in [0, len(labels)), -> a picture for each,
    uint8 [h, w] or [h, w, 3], no two alike. sha256: of all pixels and then all targets, as every machine draws them.
    """

    name: str
    summary: str
    labels: tuple[str, ...]
    draw: Callable[[list[int]], Iterable[NDArray[np.uint8]]]
    sha256: str

    def load(self, folder: Path | None, cache: Path) -> Dataset:
        """Draws the data set; `cache` is not used.

        Raises:
            DataError: if a folder is given, or this machine draws other pictures than those with the digest.
        """
        del cache
        if folder is not None:
            raise DataError(f"the pictures of {self.name} are drawn; nothing is read from {folder}")
        targets = _balanced(len(self.labels))
        pixels = torch.from_numpy(np.stack(list(self.draw(targets.tolist()))))
        digest = hashlib.sha256(pixels.numpy().tobytes() + targets.numpy().tobytes()).hexdigest()
        if digest != self.sha256:
            raise DataError(f"{self.name} is drawn differently here: its SHA-256 is {digest}, not {self.sha256}")
        if pixels.ndim == 4:
            pixels = pixels.permute(0, 3, 1, 2).contiguous()
        parts = zip(pixels.split(SIZES), targets.split(SIZES), strict=True)
        train, val, test = (Split(ImageTensor(part), part_targets) for part, part_targets in parts)
        return Dataset(self.name, self.labels, self.sha256, train, val, test)


def _balanced(classes: int) -> Tensor:
    """Targets for all splits, one after the other, in each of which every class is as frequent to about one picture."""
    targets = torch.arange(sum(SIZES)) % classes
    return targets[stratified_order(targets)]
