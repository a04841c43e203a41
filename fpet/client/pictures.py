"""Images in any form that Python has them in, as files to send."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeAlias, cast

import numpy as np
import numpy.typing as npt
from PIL import Image

from fpet.errors import ImageError
from fpet.orientation import BROKEN, upright

# What surrounds an image in a form: boundary and headers of its part, and a share of the last boundary.
_PART_BYTES = 512
_PNG_MODES = {"1", "L", "LA", "P", "RGB", "RGBA"}
_SIXTEEN_BITS = 65_535


class Readable(Protocol):
    """A binary file."""

    def read(self) -> bytes:
        """Its content from the current position on."""
        ...


# A path, a file's bytes, an open binary file, a Pillow image, or RGB pixels uint8 [H, W, 3], values 0 to 255.
Picture: TypeAlias = str | os.PathLike[str] | bytes | Readable | Image.Image | npt.NDArray[np.uint8]
# One or any number of them, or pixels uint8 [N, H, W, 3].
Pictures: TypeAlias = Picture | Iterable[Picture]


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
    for i, image in enumerate(_each(images)):
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


def _each(images: Pictures) -> Iterable[Picture]:
    """Text, bytes, files and pixels can be iterated over too, but not to any good."""
    alone = isinstance(images, str | bytes | bytearray | memoryview | os.PathLike | Image.Image)
    if alone or hasattr(images, "read") or (isinstance(images, np.ndarray) and images.ndim <= 3):
        return [cast(Picture, images)]
    return cast(Iterable[Picture], images)


def _encoded(image: Any, place: int) -> Encoded | ImageError:
    named = os.fspath(image) if isinstance(image, str | os.PathLike) else getattr(image, "name", None)
    name = named if isinstance(named, str) else f"image {place}"
    try:
        return Encoded(name, _bytes(image))
    except BROKEN as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        return ImageError(f"{name}: cannot be read: {reason}")
    except ImageError as error:
        return ImageError(f"{name}: {error}")


def _bytes(image: Any) -> bytes:
    if isinstance(image, str | os.PathLike):
        return Path(image).read_bytes()
    if isinstance(image, bytes | bytearray | memoryview):
        return bytes(image)
    if isinstance(image, Image.Image):
        return _png(_storable(image))
    if isinstance(image, np.ndarray):
        if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3 or not image.size:
            raise ImageError(f"pixels are uint8 [H, W, 3], not {image.dtype} {list(image.shape)}")
        return _png(Image.fromarray(image))
    if hasattr(image, "read"):
        data = image.read()
        if isinstance(data, bytes):
            return data
        raise ImageError("the file is open as text; open it in binary mode")
    raise ImageError(f"an object of type {type(image).__name__} is no image")


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
