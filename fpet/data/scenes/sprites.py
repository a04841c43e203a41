"""The scene of dSprites (Matthey et al., 2017), with VTAB's two questions: where a sprite is, and how it is turned.

One white square, ellipse or heart on black, with dSprites' latents: 6 scales from 0.5 to 1, 40 orientations and
32 x 32 positions on 64 x 64 pixels; VTAB halves the x positions and joins 2 or 3 orientations a class. Only the edges
differ: dSprites' are not anti-aliased.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fpet.data.scenes.dice import Dice
from fpet.data.scenes.paint import SIZE, Patch, paint
from fpet.data.scenes.shapes import Shape, ellipse, heart, square

_SHAPES = (square, ellipse, heart)
_SCALES, _ORIENTATIONS, _POSITIONS = 6, 40, 32
_RADIUS = 14  # pixels, at scale 1
_MARGIN = 16.5  # the first position; they are one pixel apart
_CLASSES = 16


@dataclass(frozen=True)
class Sprite:
    """dSprites' latents: a shape, scale 0 to 5, orientation 0 to 39 and positions 0 to 31 to the right and down."""

    shape: Shape
    scale: int
    orientation: int
    x: int
    y: int

    @property
    def degrees(self) -> float:
        """Clockwise; the last orientation is a whole turn and so equals the first."""
        return self.orientation * 360 / (_ORIENTATIONS - 1)


def location_labels() -> tuple[str, ...]:
    """Where the centre lies, in pixels from the left."""
    width = _POSITIONS // _CLASSES
    start = int(_MARGIN)
    return tuple(f"x in [{start + width * i}, {start + width * (i + 1)})" for i in range(_CLASSES))


def orientation_labels() -> tuple[str, ...]:
    """How far the sprite is turned, at least and at most."""
    members = [[k for k in range(_ORIENTATIONS) if _orientation_class(k) == i] for i in range(_CLASSES)]
    degrees = [[round(k * 360 / (_ORIENTATIONS - 1)) for k in ks] for ks in members]
    return tuple(f"turned {ks[0]} to {ks[-1]} degrees" for ks in degrees)


def sample_by_location(targets: list[int]) -> list[Sprite]:
    """Different sprites, a target being the class of x."""
    return _sample(targets, seed=1, question=lambda sprite: sprite.x * _CLASSES // _POSITIONS)


def sample_by_orientation(targets: list[int]) -> list[Sprite]:
    """Different sprites, a target being the class of the orientation.

    As in dSprites, the target is the latent whatever the symmetry of the shape. Since 39 is odd, a turned square never
    quite equals another one (the nearest differ by 2.3 degrees), nor an ellipse (4.6 degrees). A model that is blind to
    so little must guess among 4 classes for a square and 2 for an ellipse: at most (1/4 + 1/2 + 1) / 3 = 58 % correct.
    """
    return _sample(targets, seed=2, question=lambda sprite: _orientation_class(sprite.orientation))


def draw_location(targets: list[int]) -> Iterator[NDArray[np.uint8]]:
    """Pictures of `sample_by_location`, uint8 [64, 64]."""
    return map(render, sample_by_location(targets))


def draw_orientation(targets: list[int]) -> Iterator[NDArray[np.uint8]]:
    """Pictures of `sample_by_orientation`, uint8 [64, 64]."""
    return map(render, sample_by_orientation(targets))


def render(sprite: Sprite) -> NDArray[np.uint8]:
    """The picture, uint8 [64, 64]."""
    canvas = np.zeros((SIZE, SIZE), np.uint8)
    radius = _RADIUS * (0.5 + 0.1 * sprite.scale)
    paint(canvas, Patch(sprite.shape, _MARGIN + sprite.x, _MARGIN + sprite.y, radius, radius, sprite.degrees), 255)
    return canvas


def _orientation_class(orientation: int) -> int:
    return orientation * _CLASSES // _ORIENTATIONS


def _sample(targets: list[int], seed: int, question: Callable[[Sprite], int]) -> list[Sprite]:
    dice = Dice(seed)
    pictures: dict[Sprite, Sprite] = {}  # a whole turn is the same picture as none, and comes only once
    for target in targets:
        while True:
            sprite = Sprite(
                dice.choose(_SHAPES),
                dice.below(_SCALES),
                dice.below(_ORIENTATIONS),
                dice.below(_POSITIONS),
                dice.below(_POSITIONS),
            )
            if question(sprite) != target:
                continue
            picture = replace(sprite, orientation=sprite.orientation % (_ORIENTATIONS - 1))
            if picture not in pictures:
                pictures[picture] = sprite
                break
    return list(pictures.values())
