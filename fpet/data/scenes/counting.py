"""Coloured shapes strewn on a plain or shaded background: how many? (VTAB: CLEVR, Johnson et al., 2017.)"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fpet.data.scenes.dice import Dice
from fpet.data.scenes.paint import PALETTE, SIZE, Colour, Patch, paint_rimmed
from fpet.data.scenes.shapes import Shape, circle, cross, heart, square, triangle

FEWEST, MOST = 3, 10
LABELS = tuple(f"{count} objects" for count in range(FEWEST, MOST + 1))
_SHAPES = (circle, square, triangle, cross, heart)
_SMALLEST, _LARGEST = 4.0, 7.0  # radii in pixels
_NEAREST = 0.8  # of the sum of two radii: how near two centres may lie, so that neither object hides the other
_DIRECTIONS = ((0, 0), (1, 0), (0, 1), (1, 1), (1, -1))


@dataclass(frozen=True)
class Thing:
    """A shape in a colour with a darker rim; x, y and radius in pixels, degrees clockwise."""

    shape: Shape
    x: float
    y: float
    radius: float
    degrees: float
    colour: Colour


@dataclass(frozen=True)
class Background:
    """A colour at the middle that changes by `slope` from there to an edge, along a direction (right, down)."""

    colour: Colour
    slope: int
    direction: tuple[int, int]


@dataclass(frozen=True)
class Scene:
    """What is to be counted, and what it lies on."""

    background: Background
    things: tuple[Thing, ...]


def sample(targets: list[int]) -> list[Scene]:
    """Scenes with FEWEST + target things each."""
    dice = Dice(3)
    return [Scene(_sample_background(dice), _sample_things(dice, FEWEST + target)) for target in targets]


def draw(targets: list[int]) -> Iterator[NDArray[np.uint8]]:
    """Pictures of `sample`, uint8 [64, 64, 3]."""
    return map(render, sample(targets))


def render(scene: Scene) -> NDArray[np.uint8]:
    """The picture, uint8 [64, 64, 3]."""
    ground = scene.background
    ramp = np.arange(SIZE) * 2 - (SIZE - 1)
    along = ramp * ground.direction[0] + ramp[:, None] * ground.direction[1]
    canvas: NDArray[np.uint8] = (np.array(ground.colour) + along[:, :, None] * ground.slope // SIZE).astype(np.uint8)
    for thing in scene.things:
        patch = Patch(thing.shape, thing.x, thing.y, thing.radius, thing.radius, thing.degrees)
        paint_rimmed(canvas, patch, thing.colour)
    return canvas


def _sample_background(dice: Dice) -> Background:
    # Greyish, dark or light, so that every colour of the palette stands out.
    level = dice.choose((50, 60, 70, 190, 200, 210))
    red, green, blue = (level + dice.below(20) - 10 for _ in range(3))
    return Background((red, green, blue), dice.below(16), dice.choose(_DIRECTIONS))


def _sample_things(dice: Dice, count: int) -> tuple[Thing, ...]:
    things: list[Thing] = []
    while len(things) < count:
        radius = dice.between(_SMALLEST, _LARGEST)
        x, y = (dice.between(radius + 1, SIZE - radius - 1) for _ in range(2))
        apart = [(_NEAREST * (radius + other.radius)) ** 2 for other in things]
        if all((x - other.x) ** 2 + (y - other.y) ** 2 >= d for other, d in zip(things, apart, strict=True)):
            colour = dice.choose(PALETTE)
            things.append(Thing(dice.choose(_SHAPES), x, y, radius, dice.between(0, 360), colour))
    return tuple(things)
