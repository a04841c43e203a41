"""Encoded images of every kind that clients send."""

from __future__ import annotations

import functools
import io

import numpy as np
from PIL import Image

EXIF_ORIENTATION = 0x0112
ROTATED = 6  # to be turned by 90 degrees clockwise


def scene(width: int = 24, height: int = 18, seed: int = 0) -> Image.Image:
    """An RGB image with large coloured areas, different for each seed."""
    colours = np.random.default_rng(seed).integers(0, 256, (3, 4, 3), dtype=np.uint8)
    return Image.fromarray(colours).resize((width, height), Image.Resampling.BICUBIC)


def encode(image: Image.Image, format: str = "PNG", **options: object) -> bytes:
    """The image as a file."""
    buffer = io.BytesIO()
    image.save(buffer, format, **options)
    return buffer.getvalue()


def png(seed: int = 0) -> bytes:
    """An ordinary PNG."""
    return encode(scene(seed=seed))


def animated(format: str) -> bytes:
    """Several frames in one file."""
    images = [scene(seed=seed) for seed in range(3)]
    return encode(images[0], format, save_all=True, append_images=images[1:])


def sixteen_bit() -> bytes:
    """A grey PNG of 16 bits."""
    return encode(Image.fromarray(np.linspace(0, 65535, 24 * 18).reshape(18, 24).astype(np.uint16)))


def rotated() -> bytes:
    """A JPEG whose EXIF data say that it is to be turned."""
    exif = Image.Exif()
    exif[EXIF_ORIENTATION] = ROTATED
    return encode(scene(), "JPEG", exif=exif)


def multi_picture() -> bytes:
    """A camera's JPEG with a preview behind it (MPO)."""
    return encode(scene(), "MPO", save_all=True, append_images=[scene(8, 6)])


def damaged_avif() -> bytes:
    """Whole by its header, with nothing to decode; only where Pillow has AVIF."""
    data = encode(scene(), "AVIF")
    start = data.index(b"mdat") + len(b"mdat")
    return data[:start] + bytes(len(data) - start)


@functools.cache
def hundred_megapixels() -> bytes:
    """A valid PNG of 10000 x 10000 pixels in few bytes."""
    return encode(Image.new("1", (10_000, 10_000)))


LEGITIMATE: dict[str, bytes] = {
    "png": png(),
    "jpeg": encode(scene(), "JPEG"),
    "progressive jpeg": encode(scene(), "JPEG", progressive=True),
    "webp": encode(scene(), "WEBP"),
    "gif": encode(scene(), "GIF"),
    "bmp": encode(scene(), "BMP"),
    "cmyk jpeg": encode(scene().convert("CMYK"), "JPEG"),
    "16-bit": sixteen_bit(),
    "grey": encode(scene().convert("L")),
    "grey with alpha": encode(scene().convert("LA")),
    "alpha": encode(scene().convert("RGBA")),
    "black and white": encode(scene().convert("1")),
    "palette": encode(scene().convert("P")),
    "palette with transparency": encode(scene().convert("P"), transparency=0),
    "palette with alpha": encode(scene().convert("P"), transparency=bytes(range(256))),
    "rotated": rotated(),
    "multi-picture": multi_picture(),
    "1x1": encode(scene(1, 1)),
    "1x2000": encode(scene(1, 2000)),
}
