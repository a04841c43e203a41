"""From any still picture that Pillow opens to RGB pixels, in one way for training and serving."""

from __future__ import annotations

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from fpet.errors import ImageError
from fpet.orientation import BOTTOM_FIRST, BROKEN, SIDEWAYS, TURNS, orientation

_STRIP = 2**20  # pixels that are converted at once


def to_rgb(image: Image.Image) -> Tensor:
    """A decoded picture as uint8 [3, H, W], values 0 to 255, turned as its EXIF orientation says.

    The channels of a pixel lie together in memory, as Pillow has them: from there resizing is faster. Beside the
    picture and the result there is never more than a strip of rows in memory.

    Grey levels are repeated, 16-bit values are scaled to 8 bits, CMYK and palettes are converted, and transparent
    pixels lie on white.

    Raises:
        ImageError: if the picture is animated, the data is truncated or damaged, or the mode has no defined range
            (32-bit float).
        TypeError: for what is no picture of Pillow, such as a path or an array.
    """
    if not isinstance(image, Image.Image):
        raise TypeError(f"a picture is what PIL.Image.open or fromarray makes, not a {type(image).__name__}")
    try:
        _refuse_motion(image)
        image.load()
    except BROKEN as error:
        raise ImageError(f"the image is damaged or truncated: {error}") from error
    if image.mode == "F":
        raise ImageError("the image holds 32-bit floating values, whose range is not defined")
    width, height = image.size
    turned = orientation(image)
    sideways = turned in SIDEWAYS
    pixels = np.empty((width, height, 3) if sideways else (height, width, 3), np.uint8)
    rows = max(1, _STRIP // max(1, width))
    for top in range(0, height, rows):
        bottom = min(top + rows, height)
        try:
            strip = _converted(image if bottom - top == height else image.crop((0, top, width, bottom)))
        except BROKEN as error:
            raise ImageError(f"the image is of the mode {image.mode}, which is not converted: {error}") from error
        if turned in TURNS:
            strip = strip.transpose(TURNS[turned])
        place = slice(height - bottom, height - top) if turned in BOTTOM_FIRST else slice(top, bottom)
        pixels[(slice(None), place) if sideways else place] = np.asarray(strip)
    return torch.from_numpy(pixels).permute(2, 0, 1)


def _refuse_motion(image: Image.Image) -> None:
    if image.format == "MPO":  # a camera's JPEG: the further images in it are views or previews of the first
        return
    # Not `n_frames`: a GIF or TIFF is read to its end to count them, and may have millions.
    if getattr(image, "is_animated", False):
        raise ImageError("the image is animated")


def _converted(image: Image.Image) -> Image.Image:
    """The picture in the mode RGB."""
    if image.mode.startswith("I"):
        image = _to_eight_bits(image)
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image if image.mode == "RGB" else image.convert("RGB")


def _to_eight_bits(image: Image.Image) -> Image.Image:
    values = np.asarray(image).clip(0, 65535).astype(np.uint32)
    levels = ((values + 128) // 257).astype(np.uint8)
    if (transparent := image.info.get("transparency")) is not None:  # a level of 16 bits, in which others may be near
        levels[values == transparent] = 255
    return Image.fromarray(levels)
