"""Encoded images to the pixels that a task takes, in threads of their own.

Whatever bytes arrive, the outcome is pixels or an error that says what is wrong with them. Limits are checked on the
image's header, before anything is decompressed.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

from PIL import Image
from torch import Tensor

from fpet.errors import ImageError
from fpet.images import to_rgb
from fpet.preprocess import Preprocessing
from service.errors import BadImageError, ServiceError, TooLargeError, UnsupportedTypeError

# The longest side of a JPEG. Resizing takes memory in proportion to a side, even if the other is one pixel.
MAX_SIDE = 65_535
_MAGIC_BYTES = 16


@dataclass(frozen=True)
class Decoder:
    """Decodes still images in the threads of `pool`.

    formats: those accepted, by Pillow's names in lower case; max_pixels: of an image, before it is resized.
    """

    formats: tuple[str, ...]
    max_pixels: int
    pool: Executor

    def __post_init__(self) -> None:
        Image.init()

    async def decode(self, images: Sequence[bytes], each: Sequence[Preprocessing]) -> list[list[Tensor]]:
        """For each image uint8 [3, H, W] as each preprocessing asks for; an image is decoded once.

        Raises:
            BadImageError, TooLargeError, UnsupportedTypeError: saying which image it is if there are several.
        """
        loop = asyncio.get_running_loop()
        names = [f"image {i}: " if len(images) > 1 else "" for i in range(len(images))]
        futures = [
            loop.run_in_executor(self.pool, self._pixels, data, each, name)
            for data, name in zip(images, names, strict=True)
        ]
        try:
            return await asyncio.gather(*futures)
        finally:
            for future in futures:
                future.cancel()  # those whose turn has not come need not be decoded

    def _pixels(self, data: bytes, each: Sequence[Preprocessing], name: str) -> list[Tensor]:
        try:
            image = decode_image(data, self.formats, self.max_pixels)
        except ServiceError as error:
            raise type(error)(name + error.message) from error
        # Normalisation is the model's business: most tasks take the same pixels.
        resized = {(one.size, one.interpolation): one for one in each}
        pixels = {key: one.resize(image) for key, one in resized.items()}
        return [pixels[one.size, one.interpolation] for one in each]


def decode_image(data: bytes, formats: Sequence[str], max_pixels: int) -> Tensor:
    """Encoded image -> uint8 [3, height, width].

    Raises:
        BadImageError: if it is empty, damaged, truncated, animated, or no image.
        TooLargeError: if it has more than `max_pixels`.
        UnsupportedTypeError: if it is of another format than `formats`.
    """
    try:
        with open_image(data, formats) as image:
            check_size(image, max_pixels)
            return to_rgb(image)
    except (ServiceError, MemoryError):
        raise
    except ImageError as error:
        raise BadImageError(str(error)) from error
    except Exception as error:  # decoders meet hostile bytes with exceptions of every kind
        raise BadImageError(f"the image is damaged: {error}") from error


def open_image(data: bytes, formats: Sequence[str]) -> Image.Image:
    """Reads the header of an image; unlike `Image.open`, which warns by a limit that is global to the process."""
    if not data:
        raise BadImageError("the image is empty")
    known = _known_formats(data)
    if not known:
        raise BadImageError("the bytes are not an image")
    accepted = [name for name in known if name.lower() in formats]
    if not accepted:
        raise UnsupportedTypeError(f"the image is a {known[0]}; accepted are {', '.join(formats)}")
    factory, _ = Image.OPEN[accepted[0]]
    return factory(io.BytesIO(data), "")


def check_size(image: Image.Image, max_pixels: int) -> None:
    """Refuses by the header what is too large."""
    width, height = image.size
    if width * height > max_pixels:
        raise TooLargeError(f"the image has {width}x{height} pixels; the limit is {max_pixels}")
    if max(width, height) > MAX_SIDE:
        raise TooLargeError(f"the image has {width}x{height} pixels; the limit for a side is {MAX_SIDE}")


def _known_formats(data: bytes) -> list[str]:
    """Pillow's names of the formats that begin as `data` does."""
    magic = data[:_MAGIC_BYTES].ljust(_MAGIC_BYTES, b"\0")  # its checks take a full prefix for granted
    return [name for name, (_, accept) in Image.OPEN.items() if accept and accept(magic) is True]
