"""The orientation that a picture's EXIF data states. Damage elsewhere in that data harms no pixel and is ignored."""

from __future__ import annotations

import struct

from PIL import ExifTags, Image

# What Pillow raises for damaged files; RuntimeError for AVIF.
BROKEN = (
    OSError,
    SyntaxError,
    ValueError,
    EOFError,
    struct.error,
    ZeroDivisionError,
    IndexError,
    KeyError,
    RuntimeError,
)
TURNS = {  # by the EXIF orientation
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
BOTTOM_FIRST = (3, 4, 6, 7)  # orientations in which the last row of the file becomes the first row or column
SIDEWAYS = (5, 6, 7, 8)  # and those in which rows become columns
_LONGEST = 2**20  # bytes; cameras write a sixteenth of it at most


def orientation(image: Image.Image) -> int:
    """The EXIF orientation of a loaded picture; 1, which is upright, if it cannot be read."""
    if len(image.info.get("exif", b"")) > _LONGEST:  # one entry may have millions of values, each a Python object
        return 1
    try:
        found: int = image.getexif().get(ExifTags.Base.Orientation, 1)
    except BROKEN:
        # The pixels are whole; only the note on how to hold them is not.
        return 1
    return found


def upright(image: Image.Image) -> Image.Image:
    """The picture, loaded and turned. Pillow's own `exif_transpose` writes all of the EXIF data anew, of which it can
    read much that it cannot write."""
    image.load()
    turn = TURNS.get(orientation(image))
    return image if turn is None else image.transpose(turn)
