"""Objects on a chequered floor in perspective: how far is the nearest? (VTAB: CLEVR, Johnson et al., 2017.)"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fpet.data.scenes.dice import Dice
from fpet.data.scenes.paint import PALETTE, SIZE, Colour, Patch, average, paint, paint_rimmed, sample_places
from fpet.data.scenes.shapes import Shape, circle, square, triangle

NEAREST, CLASSES = 3, 6  # metres; a class is one metre
LABELS = tuple(f"nearest at {metres} to {metres + 1} m" for metres in range(NEAREST, NEAREST + CLASSES))
_FARTHEST = 14.0
_FOCAL = 64  # pixels, a field of view of 53 degrees
_EYE = 1.6  # metres above the floor
_GAP = 0.4  # metres that the others are farther away than the nearest, at least
_BOTTOMS: dict[Shape, float] = {circle: 1.0, square: 0.7, triangle: 0.5}  # where they touch the floor, see shapes.py
_BLACK: Colour = (0, 0, 0)
_HAZE = 6.0  # metres from which on the tiles fade, before they are too small for the pixels


@dataclass(frozen=True)
class Standing:
    """An upright object; distance and radius in metres, x in pixels from the left."""

    shape: Shape
    distance: float
    x: float
    radius: float
    colour: Colour


@dataclass(frozen=True)
class Floor:
    """Tiles of one metre up to the horizon; its place in pixels from the top.

    grey: the mean of their two levels. contrast: the difference. offset: of the first corner, in tiles (right, away).
    """

    horizon: float
    grey: int
    contrast: int
    offset: tuple[float, float]


@dataclass(frozen=True)
class Scene:
    """The objects in any order, on a floor below a sky of one grey level."""

    floor: Floor
    sky: int
    objects: tuple[Standing, ...]


def sample(targets: list[int]) -> list[Scene]:
    """Scenes of 2 to 6 objects, the nearest NEAREST + target metres away or up to one metre more."""
    dice = Dice(4)
    return [_sample_scene(dice, target) for target in targets]


def draw(targets: list[int]) -> Iterator[NDArray[np.uint8]]:
    """Pictures of `sample`, uint8 [64, 64, 3]."""
    return map(render, sample(targets))


def row_at(floor: Floor, distance: float) -> float:
    """Where in the picture the floor is so far away, in pixels from the top."""
    return floor.horizon + _FOCAL * _EYE / distance


def render(scene: Scene) -> NDArray[np.uint8]:
    """The picture, uint8 [64, 64, 3]."""
    canvas = np.repeat(_render_floor(scene.floor, scene.sky)[:, :, None], 3, axis=2)
    things = [
        (thing, row_at(scene.floor, thing.distance), thing.radius * _FOCAL / thing.distance)
        for thing in sorted(scene.objects, key=lambda thing: -thing.distance)
    ]
    for thing, row, radius in things:
        for width in (1.2 * radius, 0.9 * radius):  # a soft shadow: darker in the middle
            paint(canvas, Patch(circle, thing.x, row, width, width * _EYE / thing.distance), _BLACK, opacity=0.3)
    for thing, row, radius in things:
        middle = row - _BOTTOMS[thing.shape] * radius
        paint_rimmed(canvas, Patch(thing.shape, thing.x, middle, radius, radius), thing.colour)
    return canvas


def _render_floor(floor: Floor, sky: int) -> NDArray[np.uint8]:
    places = sample_places(0, SIZE)
    below = places[places > floor.horizon][:, None] - floor.horizon
    distance = _FOCAL * _EYE / below
    away = np.floor(distance + floor.offset[1])
    right = np.floor((places - SIZE / 2) * (_EYE / below) + floor.offset[0])
    contrast = floor.contrast * np.minimum(1, _HAZE / distance)
    sign = ((right + away).astype(np.int64) & 1) - 0.5
    samples = np.full((places.size, places.size), sky, np.uint8)
    samples[places > floor.horizon] = np.floor(floor.grey + sign * contrast)
    return average(samples)


def _sample_scene(dice: Dice, target: int) -> Scene:
    offset = (dice.between(0, 2), dice.between(0, 2))
    floor = Floor(dice.between(20, 28), 100 + dice.below(60), 30 + dice.below(60), offset)
    nearest = dice.between(NEAREST + target, NEAREST + target + 1)
    distances = [nearest, *(dice.between(nearest + _GAP, _FARTHEST) for _ in range(1 + dice.below(5)))]
    return Scene(floor, 190 + dice.below(60), tuple(_sample_object(dice, distance) for distance in distances))


def _sample_object(dice: Dice, distance: float) -> Standing:
    radius = dice.choose((0.4, 0.7))
    reach = radius * _FOCAL / distance
    x = dice.between(reach, SIZE - reach)
    return Standing(dice.choose(tuple(_BOTTOMS)), distance, x, radius, dice.choose(PALETTE))
