"""The forms in which Python has pictures, and what is common to reading and to sending them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol, TypeAlias, TypeVar, cast

import numpy as np
import numpy.typing as npt
from PIL import Image

from fpet.errors import ImageError


class Readable(Protocol):
    """A binary file."""

    def read(self) -> bytes:
        """Its content from the current position on."""
        ...


Pixels: TypeAlias = npt.NDArray[np.uint8]
# A path, a file's bytes, an open binary file, a Pillow image, or RGB pixels uint8 [H, W, 3], values 0 to 255.
Picture: TypeAlias = str | os.PathLike[str] | bytes | Readable | Image.Image | Pixels
# One or any number of them, or pixels uint8 [N, H, W, 3].
Pictures: TypeAlias = Picture | Iterable[Picture]
AnyPicture = TypeVar("AnyPicture")


def each(images: AnyPicture | Iterable[AnyPicture]) -> Iterable[AnyPicture]:
    """The pictures one by one. Text, bytes, files and pixels can be iterated over too, but not to any good."""
    alone = isinstance(images, str | bytes | bytearray | memoryview | os.PathLike | Image.Image)
    if alone or hasattr(images, "read") or getattr(images, "ndim", 4) <= 3:
        return [cast(AnyPicture, images)]
    return cast(Iterable[AnyPicture], images)


def name_of(image: object, place: int) -> str:
    """What errors call a picture: its path, or else its place among the pictures of the call, from 0."""
    named = os.fspath(image) if isinstance(image, str | os.PathLike) else getattr(image, "name", None)
    return named if isinstance(named, str) else f"image {place}"


def plain(image: Any) -> Path | bytes | Image.Image | Pixels:
    """The same picture in one of four forms: what is open is read, and pixels are checked.

    Raises:
        ImageError: for an object in none of the forms of `Picture`.
        OSError: if an open file cannot be read.
    """
    if isinstance(image, str | os.PathLike):
        return Path(os.fsdecode(image))
    if isinstance(image, bytes | bytearray | memoryview):
        return bytes(image)
    if isinstance(image, Image.Image):
        return image
    if isinstance(image, np.ndarray):
        if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3 or not image.size:
            raise ImageError(f"pixels are uint8 [H, W, 3], not {image.dtype} {list(image.shape)}")
        return image
    if hasattr(image, "read"):
        data = image.read()
        if isinstance(data, bytes):
            return data
        raise ImageError("the file is open as text; open it in binary mode")
    raise ImageError(f"an object of type {type(image).__name__} is no image")
