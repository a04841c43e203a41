"""A toy seen from above: which way does it face, how steep is the view? (VTAB: smallNORB, LeCun et al., 2004.)

As there, 18 azimuths 20 degrees apart, 9 elevations from 30 to 70 degrees and 6 lights. Drawn in parallel projection
with a depth buffer and Lambert's law.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fpet.data.scenes.dice import Dice
from fpet.data.scenes.paint import SAMPLES, SIZE, average, cos_sin, pixels_within, sample_places
from fpet.data.scenes.toys import KINDS, Box, Vector

AZIMUTHS = tuple(range(0, 360, 20))
ELEVATIONS = tuple(range(30, 75, 5))
AZIMUTH_LABELS = tuple(f"azimuth {degrees} degrees" for degrees in AZIMUTHS)
ELEVATION_LABELS = tuple(f"elevation {degrees} degrees" for degrees in ELEVATIONS)
_AMBIENT = 0.35  # the share of light that comes from everywhere
# Directions towards the light, of length 1, in the camera's axes (right, up, towards the camera).
_LIGHTS: tuple[Vector, ...] = (
    (0.0, 0.6, 0.8),
    (0.6, 0.8, 0.0),
    (-0.6, 0.8, 0.0),
    (0.64, 0.48, 0.6),
    (-0.64, 0.48, 0.6),
    (0.48, 0.36, 0.8),
)


@dataclass(frozen=True)
class View:
    """A toy on a turntable.

    azimuth: degrees it is turned, anticlockwise from above; at 0 its front faces the camera. elevation: degrees of the
    camera above the table. centre: pixels (right, down). scale: pixels a unit. light: towards it, see _LIGHTS.
    """

    toy: tuple[Box, ...]
    azimuth: int
    elevation: int
    centre: tuple[float, float]
    scale: float
    light: Vector
    background: int


def sample_by_azimuth(targets: list[int]) -> list[View]:
    """Views of different toys, a target being the index of the azimuth."""
    dice = Dice(5)
    return [_sample(dice, AZIMUTHS[target], dice.choose(ELEVATIONS)) for target in targets]


def sample_by_elevation(targets: list[int]) -> list[View]:
    """Views of different toys, a target being the index of the elevation."""
    dice = Dice(6)
    return [_sample(dice, dice.choose(AZIMUTHS), ELEVATIONS[target]) for target in targets]


def draw_azimuth(targets: list[int]) -> Iterator[NDArray[np.uint8]]:
    """Pictures of `sample_by_azimuth`, uint8 [64, 64]."""
    return map(render, sample_by_azimuth(targets))


def draw_elevation(targets: list[int]) -> Iterator[NDArray[np.uint8]]:
    """Pictures of `sample_by_elevation`, uint8 [64, 64]."""
    return map(render, sample_by_elevation(targets))


def render(view: View) -> NDArray[np.uint8]:
    """The picture, uint8 [64, 64]."""
    samples = np.full((SIZE * SAMPLES, SIZE * SAMPLES), view.background, np.uint8)
    depths = np.full(samples.shape, -np.inf)
    axes = _camera_axes(view.azimuth, view.elevation)
    corners = np.array([[box.low, box.high] for box in view.toy])  # [boxes, 2, 3]
    middle = (corners.min((0, 1)) + corners.max((0, 1))) / 2
    for box, (low, high) in zip(view.toy, corners, strict=True):
        centre = _combine(axes, (low + high) / 2 - middle)
        spans = axes * ((high - low) / 2)[:, None]  # from the centre of the box to those of its faces
        for i in range(3):
            towards = np.sign(axes[i, 2])
            if towards == 0:
                continue  # seen from its edge
            incidence = max(towards * _combine(axes[i], view.light), 0.0)
            level = int(255 * box.shade * (_AMBIENT + (1 - _AMBIENT) * incidence) + 0.5)
            face = np.array([centre + towards * spans[i], spans[i - 2], spans[i - 1]])
            _draw_face(samples, depths, _to_picture(face, view), level)
    return average(samples)


def _combine(vectors: NDArray[np.float64], weights: NDArray[np.float64] | Vector) -> NDArray[np.float64]:
    """As `weights @ vectors`, but in one order on every machine."""
    combined: NDArray[np.float64] = vectors[0] * weights[0] + vectors[1] * weights[1] + vectors[2] * weights[2]
    return combined


def _camera_axes(azimuth: int, elevation: int) -> NDArray[np.float64]:
    """The toy's axes (forward, left, up) in the camera's (right, up, towards the camera), [3, 3]."""
    cos_a, sin_a = cos_sin(azimuth)
    cos_e, sin_e = cos_sin(elevation)
    forward = (sin_a, -sin_e * cos_a, cos_e * cos_a)
    left = (cos_a, sin_e * sin_a, -cos_e * sin_a)
    return np.array([forward, left, (0, cos_e, sin_e)])


def _to_picture(face: NDArray[np.float64], view: View) -> NDArray[np.float64]:
    """A centre and two half sides in the camera's axes -> in pixels (right, down, towards the camera)."""
    scaled = face * (np.array([1, -1, 1]) * view.scale)
    scaled[0, :2] += view.centre
    return scaled


def _draw_face(samples: NDArray[np.uint8], depths: NDArray[np.float64], face: NDArray[np.float64], level: int) -> None:
    """Fills the samples in a parallelogram where nothing is nearer; face: its centre and two half sides, [3, 3]."""
    (x, y, depth), (ax, ay, a_depth), (bx, by, b_depth) = face.tolist()
    area = ax * by - ay * bx
    columns, rows = pixels_within(x, abs(ax) + abs(bx), SIZE), pixels_within(y, abs(ay) + abs(by), SIZE)
    right = sample_places(columns.start, columns.stop) - x
    down = (sample_places(rows.start, rows.stop) - y)[:, None]
    # Where a sample lies along the two half sides, each from -1 to 1 within the face.
    a = right * (by / area) - down * (bx / area)
    b = down * (ax / area) - right * (ay / area)
    near = depth + a * a_depth + b * b_depth
    window = tuple(slice(side.start * SAMPLES, side.stop * SAMPLES) for side in (rows, columns))
    seen = (np.abs(a) <= 1) & (np.abs(b) <= 1) & (near > depths[window])
    np.copyto(depths[window], near, where=seen)
    np.copyto(samples[window], np.uint8(level), where=seen)


def _sample(dice: Dice, azimuth: int, elevation: int) -> View:
    toy = tuple(dice.choose(KINDS)(dice))
    centre = (SIZE / 2 + dice.between(-2, 2), SIZE / 2 + dice.between(-2, 2))
    return View(toy, azimuth, elevation, centre, dice.between(19, 22), dice.choose(_LIGHTS), 80 + dice.below(120))
