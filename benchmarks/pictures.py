"""Pictures to send: what they show does not matter, only what decoding them costs."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

_COUNT = 16
_SIZE = (500, 375)  # pixels, as an ordinary small photograph


def pictures() -> list[bytes]:
    """JPEGs of coloured areas, the same ones every time."""
    encoded = []
    for seed in range(_COUNT):
        colours = np.random.default_rng(seed).integers(0, 256, (12, 16, 3), dtype=np.uint8)
        buffer = io.BytesIO()
        Image.fromarray(colours).resize(_SIZE, Image.Resampling.BICUBIC).save(buffer, "JPEG", quality=90)
        encoded.append(buffer.getvalue())
    return encoded
