"""From any still picture that Pillow opens to RGB pixels, in one way for training and serving."""

from __future__ import annotations

import struct

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from fpet.errors import ImageError

_BROKEN = (OSError, SyntaxError, ValueError, EOFError, struct.error, ZeroDivisionError, IndexError, KeyError)


def to_rgb(image: Image.Image) -> Tensor:
    """A decoded picture as uint8 [3, H, W], values 0 to 255, turned as its EXIF orientation says.

    The channels of a pixel lie together in memory, as Pillow has them: from there resizing is faster.

    Grey levels are repeated, 16-bit values are scaled to 8 bits, CMYK and palettes are converted, and transparent
    pixels lie on white.

    Raises:
        ImageError: if the picture is animated, the data is truncated or damaged, or the mode has no defined range
            (32-bit float).
    """
    try:
        _refuse_motion(image)
        image.load()
    except _BROKEN as error:
        raise ImageError(f"the image is damaged or truncated: {error}") from error
    image = _upright(image)
    if image.mode == "F":
        raise ImageError("the image holds 32-bit floating values, whose range is not defined")
    if image.mode.startswith("I"):
        image = _to_eight_bits(image)
    if image.has_transparency_data:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(white, image)
    pixels = np.array(image if image.mode == "RGB" else image.convert("RGB"))
    return torch.from_numpy(pixels).permute(2, 0, 1)


def _refuse_motion(image: Image.Image) -> None:
    if image.format == "MPO":  # a camera's JPEG: the further images in it are views or previews of the first
        return
    frames: int = getattr(image, "n_frames", 1)
    if frames > 1:
        raise ImageError(f"the image is animated, it has {frames} frames")


def _upright(image: Image.Image) -> Image.Image:
    try:
        return ImageOps.exif_transpose(image)
    except _BROKEN:
        # The pixels are whole; only the note on how to hold them is not.
        return image


def _to_eight_bits(image: Image.Image) -> Image.Image:
    values = np.asarray(image).astype(np.int64).clip(0, 65535)
    return Image.fromarray(((values + 128) // 257).astype(np.uint8))
