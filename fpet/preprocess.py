"""From decoded pixels to model input; a task carries its own preprocessing, so that serving sees what training saw."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from numbers import Integral

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from fpet.errors import UnsupportedError
from fpet.tensor_names import described

INTERPOLATIONS = ("bicubic", "bilinear")
Triple = tuple[float, float, float]
_KEPT = 64  # of what tasks normalise with


@dataclass(frozen=True)
class Preprocessing:
    """Resizing, ignoring the aspect ratio, and normalisation.

    size: (height, width) in pixels; mean, std: per channel, of pixel values in [0, 1]; interpolation: antialiased.
    Lists become tuples.

    Raises:
        UnsupportedError: for another number of values, a size below one pixel, a std that is not positive, or an
            unknown interpolation.
    """

    size: tuple[int, int]
    mean: Triple = (0.5, 0.5, 0.5)
    std: Triple = (0.5, 0.5, 0.5)
    interpolation: str = "bicubic"

    def __post_init__(self) -> None:
        for name, length in (("size", 2), ("mean", 3), ("std", 3)):
            values = tuple(getattr(self, name))
            if len(values) != length:
                raise UnsupportedError(f"{name} = {values}: it has {length} values")
            object.__setattr__(self, name, values)
        if any(isinstance(one, bool) or not isinstance(one, Integral) for one in self.size):
            raise UnsupportedError(f"size = {self.size}: pixels are whole numbers")
        object.__setattr__(self, "size", tuple(map(int, self.size)))
        if min(self.size) < 1:
            raise UnsupportedError(f"size = {self.size}: an image has at least one pixel")
        if min(self.std) <= 0:
            raise UnsupportedError(f"std = {self.std}: the values must be positive")
        if self.interpolation not in INTERPOLATIONS:
            raise UnsupportedError(f"interpolation = {self.interpolation!r}; known are {', '.join(INTERPOLATIONS)}")

    def resize(self, image: Tensor) -> Tensor:
        """uint8 [3, h, w] -> uint8 [3, H, W], contiguous, on the CPU.

        Raises:
            TypeError: for what is no such tensor, such as a picture of Pillow, or values from 0 to 1.
        """
        if not isinstance(image, Tensor) or image.dtype != torch.uint8 or image.ndim != 3 or len(image) != 3:
            raise TypeError(
                f"an image is a uint8 tensor [3, H, W], which fpet.images.to_rgb makes, not a {described(image)}"
            )
        if tuple(image.shape[-2:]) == self.size:
            return image.contiguous()
        return F.interpolate(image[None], self.size, mode=self.interpolation, antialias=True)[0].contiguous()

    def normalize(self, images: Tensor, dtype: torch.dtype) -> Tensor:
        """uint8 [B, 3, H, W], values 0 to 255 -> `dtype` [B, 3, H, W] with mean 0 and deviation 1 as configured.

        Raises:
            TypeError: for images of another dtype or shape, such as one without its batch.
        """
        return normalize(images, [self], dtype)


def check_precision(preprocessing: Preprocessing) -> None:
    """Raises ValueError if mean and std, as the float32 that images are normalised in, make infinite pixels."""
    with np.errstate(all="ignore"):  # what cannot be is what is looked for
        mean, std = (np.array(values, np.float32) for values in (preprocessing.mean, preprocessing.std))
        black, white = (0 - mean) / std, (1 - mean) / std
    if not np.isfinite([mean, std, black, white]).all():
        raise ValueError(
            f"mean = {preprocessing.mean} and std = {preprocessing.std} are too large or too small for float32"
        )


def _constants(mean: Triple, std: Triple, device: torch.device) -> tuple[Tensor, Tensor]:
    """Mean and deviation, [1, 3, 1, 1] each. They are kept, because a copy to a GPU waits for all that it does; but not
    where torch traces a program, whose tensors are of no use to anything else.
    """
    if torch.compiler.is_compiling():
        return _made(mean, std, device)
    pair = _remembered(mean, std, device)
    if type(pair[0]) is not Tensor:
        _remembered.cache_clear()
    return pair


def _made(mean: Triple, std: Triple, device: torch.device) -> tuple[Tensor, Tensor]:
    pair = torch.tensor([mean, std], dtype=torch.float32, device=device)[:, None, :, None, None]
    return pair[0], pair[1]


_remembered = lru_cache(_KEPT)(_made)


def normalize(images: Tensor, preprocessings: Sequence[Preprocessing], dtype: torch.dtype) -> Tensor:
    """As `Preprocessing.normalize`, the i-th image by the i-th preprocessing, or all by one.

    Raises:
        TypeError: as `Preprocessing.normalize`.
        ValueError: for another number of preprocessings.
    """
    if not isinstance(images, Tensor) or images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] != 3:
        raise TypeError(
            f"images are uint8 [B, 3, H, W], values 0 to 255, before they are normalised, not {described(images)}"
        )
    if images.shape[0] == 0:
        return images.to(dtype)
    if len(preprocessings) != 1 and len(preprocessings) != images.shape[0]:
        raise ValueError(f"{images.shape[0]} images, but {len(preprocessings)} preprocessings")
    mean, std = _constants(preprocessings[0].mean, preprocessings[0].std, images.device)
    # What all have in common broadcasts, which is cheaper than a row an image.
    if any(one != preprocessings[0] for one in preprocessings):
        rows = zip(*(_constants(one.mean, one.std, images.device) for one in preprocessings), strict=True)
        mean, std = map(torch.cat, rows)
    # In place: each operator, and each tensor that is freed, releases the interpreter's lock.
    return images.float().div_(255).sub_(mean).div_(std).to(dtype)
