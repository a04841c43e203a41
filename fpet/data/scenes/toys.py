"""Toys made of boxes, one of a kind for each of NORB's five kinds, in proportions that differ from toy to toy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fpet.data.scenes.dice import Dice

Vector = tuple[float, float, float]


@dataclass(frozen=True)
class Box:
    """A box along the axes (forward, left, up) between two corners; shade: the share of light it returns, 0 to 1."""

    low: Vector
    high: Vector
    shade: float


def make_car(dice: Dice) -> list[Box]:
    """A long bonnet in front of a cabin."""
    length, width, height = dice.between(0.9, 1.1), dice.between(0.38, 0.5), dice.between(0.22, 0.3)
    roof = height + dice.between(0.2, 0.3)
    front = dice.between(0.05, 0.3) * length
    return [
        Box((-length, -width, 0.12), (length, width, height + 0.1), 0.9),
        Box((-0.85 * length, -0.85 * width, height + 0.1), (front, 0.85 * width, roof + 0.1), 0.6),
        *_wheels(0.6 * length, width, 0.16),
    ]


def make_truck(dice: Dice) -> list[Box]:
    """A cab in front of a higher load."""
    length, width = dice.between(0.95, 1.1), dice.between(0.36, 0.45)
    cab, load = dice.between(0.55, 0.7), dice.between(0.8, 1.0)
    back = dice.between(0.4, 0.55) * length
    return [
        Box((-length, -width, 0.15), (back - 0.08, width, load), 0.95),
        Box((back, -0.9 * width, 0.15), (length, 0.9 * width, cab), 0.65),
        *_wheels(0.7 * length, width, 0.2),
    ]


def make_plane(dice: Dice) -> list[Box]:
    """Wings before the middle, the tail behind."""
    length, span, body = dice.between(0.95, 1.1), dice.between(0.85, 1.1), dice.between(0.1, 0.16)
    wing, tail = dice.between(0.0, 0.25), dice.between(0.3, 0.45)
    return [
        Box((-length, -body, 0), (length, body, 2 * body), 0.9),
        Box((wing - 0.2, -span, 0.8 * body), (wing + 0.2, span, 1.2 * body), 0.7),
        Box((-length, -0.4 * span, 1.4 * body), (-length + 0.22, 0.4 * span, 1.7 * body), 0.7),
        Box((-length, -0.03, 2 * body), (-length + 0.25, 0.03, 2 * body + tail), 0.8),
    ]


def make_animal(dice: Dice) -> list[Box]:
    """Four legs, a head in front and a thin tail behind."""
    length, width, leg = dice.between(0.6, 0.8), dice.between(0.2, 0.3), dice.between(0.4, 0.6)
    back, neck, thick = leg + dice.between(0.35, 0.45), dice.between(0.1, 0.4), dice.between(0.07, 0.11)
    corners = [(x, y) for x in (-length + thick, length - thick) for y in (-width + thick, width - thick)]
    return [
        Box((-length, -width, leg), (length, width, back), 0.8),
        *(Box((x - thick, y - thick, 0), (x + thick, y + thick, leg), 0.6) for x, y in corners),
        Box((length - 0.1, -0.12, back), (length + 0.15, 0.12, back + neck), 0.8),
        Box((length - 0.1, -0.16, back + neck), (length + 0.4, 0.16, back + neck + 0.28), 0.95),
        Box((-length - 0.3, -0.05, back - 0.12), (-length, 0.05, back - 0.02), 0.6),
    ]


def make_human(dice: Dice) -> list[Box]:
    """One arm held out in front, the other hanging; feet that point forward."""
    leg, trunk = dice.between(0.7, 0.85), dice.between(0.6, 0.75)
    width, deep, arm = dice.between(0.26, 0.34), dice.between(0.13, 0.18), dice.between(0.5, 0.65)
    top = leg + trunk
    return [
        *(Box((-deep, side - 0.11, 0.1), (deep, side + 0.11, leg), 0.55) for side in (-0.14, 0.14)),
        *(Box((-deep, side - 0.11, 0), (deep + 0.2, side + 0.11, 0.1), 0.4) for side in (-0.14, 0.14)),
        Box((-deep, -width, leg), (deep, width, top), 0.8),
        Box((-0.15, -0.15, top + 0.05), (0.15, 0.15, top + 0.4), 0.95),
        Box((-0.09, width, top - 0.2), (arm, width + 0.18, top), 0.9),
        Box((-0.09, -width - 0.18, top - arm), (0.09, -width, top), 0.9),
    ]


KINDS: tuple[Callable[[Dice], list[Box]], ...] = (make_car, make_truck, make_plane, make_animal, make_human)


def _wheels(along: float, width: float, radius: float) -> list[Box]:
    return [
        Box((x - radius, y - 0.08, 0), (x + radius, y + 0.08, 2 * radius), 0.3)
        for x in (-along, along)
        for y in (-width, width)
    ]
