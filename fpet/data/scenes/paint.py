"""Anti-aliased drawing that gives the same bytes on every machine.

Only +, -, *, / and comparisons of single elements are used, which IEEE 754 defines to the last bit, and sums of whole
numbers. Sines and cosines, which it does not, are rounded far above that bit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fpet.data.scenes.shapes import Shape

SIZE = 64  # pixels a side of every picture
SAMPLES = 4  # along each side of a pixel
Colour = tuple[int, int, int]
PALETTE: tuple[Colour, ...] = (
    (220, 40, 40),  # red
    (250, 140, 20),  # orange
    (240, 220, 50),  # yellow
    (50, 170, 60),  # green
    (30, 200, 210),  # cyan
    (50, 90, 230),  # blue
    (140, 60, 190),  # purple
    (245, 110, 190),  # pink
)


def cos_sin(degrees: float) -> tuple[float, float]:
    """Cosine and sine of an angle as multiples of 2^-20."""
    angle = math.radians(degrees)
    return round(math.cos(angle) * 2**20) / 2**20, round(math.sin(angle) * 2**20) / 2**20


def sample_places(start: int, stop: int) -> NDArray[np.float64]:
    """The coordinates of the samples in the pixels [start, stop); pixel i reaches from i to i + 1."""
    return (np.arange(start * SAMPLES, stop * SAMPLES) + 0.5) / SAMPLES


def pixels_within(centre: float, reach: float, length: int) -> slice:
    """The pixels of a side of `length` that [centre - reach, centre + reach] touches."""
    return slice(max(math.floor(centre - reach), 0), min(math.ceil(centre + reach), length))


def average(samples: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """[SAMPLES h, SAMPLES w] -> the pixels, [h, w]."""
    height, width = (length // SAMPLES for length in samples.shape)
    sums = samples.reshape(height, SAMPLES, width, SAMPLES).sum((1, 3), dtype=np.uint16)
    pixels: NDArray[np.uint8] = ((sums + SAMPLES**2 // 2) // SAMPLES**2).astype(np.uint8)
    return pixels


@dataclass(frozen=True)
class Patch:
    """A shape on a picture; x to the right and y down, in pixels from the corner of the picture.

    x, y: where its origin lies. width, height: half the extent of its unit circle. degrees: how far it is turned,
    clockwise.
    """

    shape: Shape
    x: float
    y: float
    width: float
    height: float
    degrees: float = 0


def paint(canvas: NDArray[np.uint8], patch: Patch, colour: Colour | int, opacity: float = 1) -> None:
    """Paints the patch on a canvas, uint8 [h, w, 3] (or [h, w], with a grey level for a colour)."""
    reach = max(patch.width, patch.height)
    rows, columns = pixels_within(patch.y, reach, canvas.shape[0]), pixels_within(patch.x, reach, canvas.shape[1])
    down = (sample_places(rows.start, rows.stop) - patch.y)[:, None]
    right = sample_places(columns.start, columns.stop) - patch.x
    cos, sin = cos_sin(patch.degrees)
    u = right * (cos / patch.width) + down * (sin / patch.width)
    v = down * (cos / patch.height) - right * (sin / patch.height)
    inside = patch.shape(u, v).reshape(rows.stop - rows.start, SAMPLES, columns.stop - columns.start, SAMPLES)
    share = inside.sum((1, 3), dtype=np.uint8) * (opacity / SAMPLES**2)
    if canvas.ndim == 3:
        share = share[:, :, None]
    under = canvas[rows, columns]
    canvas[rows, columns] = np.floor(under + (np.asarray(colour, np.float64) - under) * share + 0.5)


def paint_rimmed(canvas: NDArray[np.uint8], patch: Patch, colour: Colour) -> None:
    """Paints the patch with a rim of half the brightness, which parts it from others of its colour."""
    red, green, blue = colour
    paint(canvas, patch, (red // 2, green // 2, blue // 2))
    paint(canvas, replace(patch, width=0.75 * patch.width, height=0.75 * patch.height), colour)
