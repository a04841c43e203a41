"""Random views of training images: mirrored, and cropped."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

_RATIO = math.log(4 / 3)  # of a crop's sides, as in Inception's training and everywhere since


def augmented(images: Tensor, *, hflip: float, crop_scale: float) -> Tensor:
    """Other views of the images, drawn anew at each call from torch's generator of their device.

    images: uint8 [B, 3, H, W]; the result is the same. hflip: the probability, 0 to 1, that an image is mirrored left
    to right. crop_scale: the least share of the area that is cropped from an image, above 0, and enlarged to its size;
    1 for no crops. What is off draws no numbers.
    """
    if crop_scale < 1:
        images = resized_crops(images, *random_boxes(images, crop_scale))
    if hflip > 0:
        mirrored = _uniform(images) < hflip
        images = torch.where(mirrored[:, None, None, None], images.flip(3), images)
    return images


def random_boxes(images: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Where to crop: the upper left corners (y, x) and the sizes (height, width), float32 [B, 2] each, in units of the
    image's height and width.

    As in RandomResizedCrop (Szegedy et al. 2015, "Going Deeper with Convolutions", section 6) the share of the area is
    uniform from `scale` to 1 and the logarithm of width to height, in pixels, from that of 3/4 to that of 4/3. But
    where a box of that shape would not fit, it is as near to it as fits, so that no draw is repeated.
    """
    rows, columns = images.shape[2:]
    area = 1 - (1 - scale) * _uniform(images)
    ratio = torch.exp(_RATIO * (2 * _uniform(images) - 1)) * (rows / columns)
    width = (area * ratio).sqrt().maximum(area).clamp(max=1)  # at least the area: the height is 1 at most
    size = torch.stack((area / width, width), dim=1)
    corner = torch.stack((_uniform(images), _uniform(images)), dim=1) * (1 - size)
    return corner, size


def resized_crops(images: Tensor, corner: Tensor, size: Tensor) -> Tensor:
    """The boxes of uint8 images [B, 3, H, W], as `random_boxes` draws them, enlarged to H x W by linear
    interpolation."""
    middle = 2 * corner + size - 1  # in units of half an image, from its own middle
    y, x = (
        middle[:, i, None] + size[:, i, None] * _middles(pixels, images.device)
        for i, pixels in enumerate(images.shape[2:])
    )
    # Not by `affine_grid`, which multiplies matrices, in whatever precision the device is set to.
    grid = torch.stack(torch.broadcast_tensors(x[:, None, :], y[:, :, None]), dim=3)
    crops = F.grid_sample(images.float(), grid, padding_mode="border", align_corners=False)
    return crops.round().to(torch.uint8)


def _uniform(images: Tensor) -> Tensor:
    """A number an image, from 0 to below 1, [B]."""
    return torch.rand(len(images), dtype=torch.float32, device=images.device)


def _middles(pixels: int, device: torch.device) -> Tensor:
    """Of so many pixels that reach from -1 to 1."""
    return (2 * torch.arange(pixels, dtype=torch.float32, device=device) + 1) / pixels - 1
