"""Picture files: opened and decoded, with what is wrong in words."""

from __future__ import annotations

import io
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import IO, TypeAlias

import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from fpet.errors import ImageError
from fpet.images import to_rgb
from fpet.orientation import BROKEN
from fpet.pictures import Picture, plain
from fpet.tensor_names import described

# In this process a picture may also be what `fpet.images.to_rgb` makes of one: a tensor, uint8 [3, H, W].
LocalPicture: TypeAlias = Picture | Tensor
LocalPictures: TypeAlias = LocalPicture | Iterable[LocalPicture]

# What reading a picture may raise. Pillow raises NotImplementedError for variants of a format that it does not know.
UNREADABLE = (ImageError, *BROKEN, Image.DecompressionBombError)

# Brands of ISO base media files (ISO/IEC 23008-12, annex B; AVIF 1.1): what phones write, and Pillow may not read.
_HEIC = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx")
_BRANDS = {**dict.fromkeys(_HEIC, "HEIC"), b"mif1": "HEIF", b"msf1": "HEIF", b"avif": "AVIF", b"avis": "AVIF"}


def read_image(path: Path) -> Tensor:
    """A picture file as uint8 [3, H, W], as `fpet.images.to_rgb` makes it; raises one of UNREADABLE."""
    if is_special(path):
        raise ImageError("this is no file")
    with path.open("rb") as file:
        return decode_image(file)


def decode_image(file: IO[bytes]) -> Tensor:
    """As `read_image`, of an open file; raises the same."""
    with open_image(file) as image:
        return to_rgb(image)


def to_pixels(picture: LocalPicture) -> Tensor:
    """A picture in any form as uint8 [3, H, W] on the CPU; raises one of UNREADABLE."""
    if isinstance(picture, Tensor):
        stored = picture.layout == torch.strided and not picture.is_meta
        if not stored or picture.dtype != torch.uint8 or picture.ndim != 3 or len(picture) != 3 or not picture.numel():
            raise ImageError(f"pixels as a tensor are uint8 [3, H, W], not {described(picture)}")
        return picture.cpu()
    form = plain(picture)
    if isinstance(form, Path):
        return read_image(form)
    if isinstance(form, bytes):
        return decode_image(io.BytesIO(form))
    return to_rgb(form if isinstance(form, Image.Image) else Image.fromarray(form))


def open_image(file: IO[bytes]) -> Image.Image:
    """As `Image.open`, but says what a file is that Pillow does not recognise.

    Raises:
        ImageError: if Pillow does not recognise it.
    """
    try:
        return Image.open(file)
    except UnidentifiedImageError as error:
        file.seek(0)
        beginning = file.read(12)
        brand = _BRANDS.get(beginning[8:]) if beginning[4:8] == b"ftyp" else None
        if brand:
            raise ImageError(f"this {brand} file cannot be read here; convert it to JPEG or PNG") from error
        raise ImageError("this is in no picture format that is read here") from error


def is_special(path: Path) -> bool:
    """Whether it is a pipe, a socket or a device, on which opening or reading may block for ever."""
    try:
        mode = path.stat().st_mode
    except OSError:  # opening it will say why
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def reason(error: Exception) -> str:
    """What is wrong with a picture, of one of UNREADABLE; without its path, which stands before it."""
    if isinstance(error, Image.DecompressionBombError) and Image.MAX_IMAGE_PIXELS is not None:
        return f"it has more than {2 * Image.MAX_IMAGE_PIXELS} pixels; make it smaller"
    return (isinstance(error, OSError) and error.strerror) or str(error)
