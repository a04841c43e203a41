"""Encoded images to the pixels that a task takes, in threads of their own.

Whatever bytes arrive, the outcome is pixels or an error that says what is wrong with them. Limits are checked on the
image's header, before anything is decompressed.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from PIL import Image
from torch import Tensor

from fpet.errors import ImageError
from fpet.hardware.allocator import return_freed_memory
from fpet.images import to_rgb
from fpet.preprocess import Preprocessing
from service.errors import BadImageError, ServiceError, TooLargeError, UnsupportedTypeError
from service.fair_threads import FairThreads

# The longest side of a JPEG. Resizing takes memory in proportion to a side, even if the other is one pixel.
MAX_SIDE = 65_535
# Images of more pixels take turns: one of 50 million, as a WebP with alpha, takes up to 1 GB.
_LARGE = 12_500_000
# Pillow decodes run-length coded BMPs pixel by pixel in Python.
_RUN_LENGTH = 4_000_000
_MAGIC_BYTES = 16
# Pillow's readers of headers are loops in Python: a file of many tiny pieces would keep them busy for half a minute.
# A GIF of 32 MiB, which is in pieces of 255 bytes, is read in half as many.
_READS = 2**19
# What makes a decoder go over all that it has once more. A camera's file has a scan or a dozen for each of its views.
# EXIF data comes in pieces of 64 KiB, of which a camera writes one a view. Pillow reads it as it opens a JPEG, and one
# entry may have millions of values, each a Python object: so it gets no more than `fpet.orientation` would read.
_REPEATED = {
    "JPEG": {b"\xff\xda\0": 50, b"Exif\0\0": 16, b"8BIM": 10_000},  # scans, pieces to be put together, resources
    "PNG": {b"iCCP": 10},  # profiles
}


@dataclass(frozen=True)
class Decoder:
    """Decodes still images in `threads`, and large ones, one after another, in the one of `large`: a large image that
    waits holds up no thread that could decode small ones.

    formats: those accepted, by Pillow's names in lower case; max_pixels: of an image, before it is resized; at_once: an
    image of more pixels is large.
    """

    formats: tuple[str, ...]
    max_pixels: int
    threads: FairThreads
    large: FairThreads
    at_once: int = _LARGE

    def __post_init__(self) -> None:
        Image.init()

    async def decode(
        self, images: Sequence[bytes], preprocessings: Sequence[Preprocessing], kind: Hashable = None
    ) -> list[list[Tensor]]:
        """For each image uint8 [3, H, W] as each preprocessing asks for; an image is decoded once.

        kind: whose images these are, such as a task's; images are decoded in rotation over kinds.

        Raises:
            BadImageError, TooLargeError, UnsupportedTypeError: saying which image it is if there are several.
        """
        if len(images) == 1:  # as most requests have; a task would be most of the cost
            return [await self._in_turn(images[0], preprocessings, kind, "")]
        waiting = asyncio.Semaphore(self.threads.ahead)  # no more of one request wait for a turn

        async def decoded(index: int, data: bytes) -> list[Tensor]:
            async with waiting:
                return await self._in_turn(data, preprocessings, kind, f"image {index}: ")

        decoding = [asyncio.ensure_future(decoded(index, data)) for index, data in enumerate(images)]
        try:
            return await asyncio.gather(*decoding)
        finally:
            for one in decoding:
                one.cancel()  # those whose turn has not come need not be decoded

    async def _in_turn(
        self, data: bytes, preprocessings: Sequence[Preprocessing], kind: Hashable, name: str
    ) -> list[Tensor]:
        try:
            return await self.threads.call(kind, self._pixels, data, preprocessings, name, self.at_once)
        except _LargeError:
            return await self.large.call(kind, self._pixels_of_large, data, preprocessings, name)

    def _pixels_of_large(self, data: bytes, preprocessings: Sequence[Preprocessing], name: str) -> list[Tensor]:
        try:
            return self._pixels(data, preprocessings, name, self.max_pixels)
        finally:
            return_freed_memory()  # up to a gigabyte, which no other work would use again

    def _pixels(self, data: bytes, preprocessings: Sequence[Preprocessing], name: str, at_once: int) -> list[Tensor]:
        try:
            image = decode_image(data, self.formats, self.max_pixels, at_once)
        except ServiceError as error:
            raise type(error)(name + error.message) from error
        # Normalisation is the model's business: most tasks take the same pixels.
        resized = {(one.size, one.interpolation): one for one in preprocessings}
        pixels = {key: one.resize(image) for key, one in resized.items()}
        return [pixels[one.size, one.interpolation] for one in preprocessings]


class _LargeError(Exception):
    """The image has more pixels than are decoded at once with others."""


def decode_image(data: bytes, formats: Sequence[str], max_pixels: int, at_once: int | None = None) -> Tensor:
    """Encoded image -> uint8 [3, height, width].

    at_once: how many pixels may be decoded beside other images; none are if there are more.

    Raises:
        BadImageError: if it is empty, damaged, truncated, animated, or no image.
        TooLargeError: if it has more than `max_pixels`.
        UnsupportedTypeError: if it is of another format than `formats`.
    """
    try:
        with open_image(data, formats) as image:
            check_size(image, max_pixels)
            if at_once is not None and image.width * image.height > at_once:
                raise _LargeError
            return to_rgb(image)
    except (ServiceError, MemoryError, _LargeError):
        raise
    except ImageError as error:
        raise BadImageError(str(error)) from error
    except Exception as error:  # decoders meet hostile bytes with exceptions of every kind
        raise BadImageError(f"the image is damaged: {error}") from error


def open_image(data: bytes, formats: Sequence[str]) -> Image.Image:
    """Reads the header of an image, without the process-wide limit of pixels at which `Image.open` warns.

    Raises:
        BadImageError: if it is empty, no image, or repeats what takes a decoder long.
        UnsupportedTypeError: if it is of another format than `formats`.
    """
    if not data:
        raise BadImageError("the image is empty")
    known = _known_formats(data)
    if not known:
        raise BadImageError("the bytes are not an image")
    accepted = [name for name in known if name.lower() in formats]
    if not accepted:
        raise UnsupportedTypeError(f"the image is of the format {known[0]}; accepted are {', '.join(formats)}")
    for mark, most in _REPEATED.get(accepted[0], {}).items():
        if data.count(mark) > most:
            raise BadImageError(f"the image is damaged: {mark!r} is in it more than {most} times")
    factory, _ = Image.OPEN[accepted[0]]
    return factory(_Pieces(data), "")


class _Pieces(io.BytesIO):
    """A file that can be read in so many pieces only."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self._left = _READS

    def read(self, size: int | None = -1, /) -> bytes:
        """As of any file.

        Raises:
            OSError: if it was read `_READS` times before.
        """
        self._left -= 1
        if self._left < 0:
            raise OSError("it is in too many pieces")
        return super().read(size)


def check_size(image: Image.Image, max_pixels: int) -> None:
    """Checks the size of an image by its header.

    Raises:
        TooLargeError: if it has more than `max_pixels`, or a side of more than `MAX_SIDE`.
    """
    width, height = image.size
    if any(tile[0] == "bmp_rle" for tile in getattr(image, "tile", [])):
        max_pixels = min(max_pixels, _RUN_LENGTH)
    if width * height > max_pixels:
        raise TooLargeError(f"the image has {width}x{height} pixels; the limit is {max_pixels}")
    if max(width, height) > MAX_SIDE:
        raise TooLargeError(f"the image has {width}x{height} pixels; the limit for a side is {MAX_SIDE}")


def _known_formats(data: bytes) -> list[str]:
    """Pillow's names of the formats that begin as `data` does."""
    magic = data[:_MAGIC_BYTES].ljust(_MAGIC_BYTES, b"\0")  # its checks take a full prefix for granted
    return [name for name, (_, accept) in Image.OPEN.items() if accept and accept(magic) is True]
