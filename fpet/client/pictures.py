"""Images in any form that Python has them in, as files to send."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from PIL import Image

from fpet.errors import ImageError
from fpet.orientation import BROKEN, upright
from fpet.pictures import Picture, Pictures, each, name_of, plain

# What surrounds an image in a form: boundary and headers of its part, and a share of the last boundary.
_PART_BYTES = 512
_PNG_MODES = {"1", "L", "LA", "P", "RGB", "RGBA"}
_SIXTEEN_BITS = 65_535


@dataclass(frozen=True)
class Encoded:
    """An image as a file's bytes; name: its path, or its place among the images of the call."""

    name: str
    data: bytes = field(repr=False)


Batch: TypeAlias = list[Encoded | ImageError]


def batches(images: Pictures, size: int, max_body: int) -> Iterator[Batch]:
    """The images in their order, in batches of at most `size` whose form has at most `max_body` bytes, unless one image
    alone has more. In the place of an image that cannot be read or encoded is its error. Images are read when their
    batch is asked for.
    """
    batch: Batch = []
    length = 0
    for i, image in enumerate(each(images)):
        one = _encoded(image, i)
        more = len(one.data) + _PART_BYTES if isinstance(one, Encoded) else 0
        if batch and (len(batch) == size or length + more > max_body):
            yield batch
            batch, length = [], 0
        batch.append(one)
        length += more
    if batch:
        yield batch


def single(image: Picture) -> Encoded:
    """An image of a call that takes one.

    Raises:
        ImageError: if it cannot be read or encoded.
    """
    encoded = _encoded(image, 0)
    if isinstance(encoded, ImageError):
        raise encoded
    return encoded


def _encoded(image: Any, place: int) -> Encoded | ImageError:
    name = name_of(image, place)
    try:
        return Encoded(name, _bytes(image))
    except BROKEN as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        return ImageError(f"{name}: cannot be read: {reason}")
    except ImageError as error:
        return ImageError(f"{name}: {error}")


def _bytes(image: Any) -> bytes:
    form = plain(image)
    if isinstance(form, Path):
        return form.read_bytes()
    if isinstance(form, bytes):
        return form
    return _png(_storable(form) if isinstance(form, Image.Image) else Image.fromarray(form))


def _storable(image: Image.Image) -> Image.Image:
    """The image in a mode that PNG has, with the same meaning to `fpet.images.to_rgb`, which says how modes convert."""
    image = upright(image)
    if image.mode == "F":
        raise ImageError("the image holds 32-bit floating values, whose range is not defined")
    if image.mode.startswith("I"):
        levels = Image.fromarray(np.asarray(image).astype(np.int64).clip(0, _SIXTEEN_BITS).astype(np.uint16))
        levels.info.update((key, value) for key, value in image.info.items() if key == "transparency")
        return levels
    if image.mode in _PNG_MODES:
        return image
    return image.convert("RGBA" if image.has_transparency_data else "RGB")


def _png(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG", compress_level=1)  # the time that more would take is longer than a near wire takes
    return buffer.getvalue()
