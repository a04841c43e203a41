"""Shapes are painted where they should be, and sprites lie and turn as their targets say."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from scene_targets import cycle

from fpet.data.scenes import sprites
from fpet.data.scenes.dice import Dice
from fpet.data.scenes.paint import SAMPLES, Patch, average, cos_sin, paint
from fpet.data.scenes.shapes import Shape, circle, cross, ellipse, heart, square, triangle


def test_dice_are_random_numbers_of_the_promised_sequence() -> None:
    dice = Dice(0)
    assert dice.between(0, 1) == 0.8444218515250481  # what random.seed(0); random.random() gives in every Python 3
    assert [dice.below(6) for _ in range(5)] == [4, 2, 1, 3, 2]
    assert {dice.choose("abc") for _ in range(50)} == set("abc")


def test_sines_are_near_and_right_angles_exact() -> None:
    for degrees in range(0, 360, 7):
        assert cos_sin(degrees) == pytest.approx(
            (math.cos(math.radians(degrees)), math.sin(math.radians(degrees))), abs=1e-6
        )
    assert [cos_sin(90 * i) for i in range(4)] == [(1, 0), (0, 1), (-1, 0), (0, -1)]


@pytest.mark.parametrize(
    ("shape", "area"), [(circle, math.pi), (ellipse, math.pi / 2), (square, 1.96), (triangle, 9 / 7), (cross, 2.03)]
)
def test_a_shape_covers_its_area_about_its_place(shape: Shape, area: float) -> None:
    canvas = np.zeros((64, 64), np.uint8)
    paint(canvas, Patch(shape, 30.3, 33.6, 20, 20, 27), 200)
    assert canvas.sum() / 200 == pytest.approx(area * 400, rel=0.01)
    assert centre_of_mass(canvas) == pytest.approx((30.3, 33.6), abs=0.1)


def test_opacity_blends_and_edges_of_the_picture_cut() -> None:
    canvas = np.full((8, 8, 3), 100, np.uint8)
    paint(canvas, Patch(circle, 0, 0, 30, 30), (200, 0, 100), opacity=0.5)
    assert (canvas == np.array([150, 50, 100])).all()


def test_samples_are_averaged_to_the_nearest_level() -> None:
    samples = np.zeros((2 * SAMPLES, SAMPLES), np.uint8)
    samples[:SAMPLES] = 255
    samples[0, 0] = 0
    assert average(samples).tolist() == [[239], [0]]


def centre_of_mass(picture: NDArray[np.generic]) -> tuple[float, float]:
    places = np.arange(64) + 0.5
    return float((picture.sum(0) * places).sum() / picture.sum()), float(
        (picture.sum(1) * places).sum() / picture.sum()
    )


def test_a_sprite_lies_where_its_target_says() -> None:
    targets = cycle(16)
    labels = sprites.location_labels()
    for target, picture in zip(targets, sprites.draw_location(targets), strict=True):
        x, _ = centre_of_mass(picture)
        assert labels[target] == f"x in [{int(x) // 2 * 2}, {int(x) // 2 * 2 + 2})"


def test_a_sprite_is_turned_as_its_target_says() -> None:
    """What is far from a heart's centre of mass lies on the whole where its lobes are: up, when it is not turned."""
    targets = cycle(16, 600)
    labels = sprites.orientation_labels()
    drawn = zip(targets, sprites.sample_by_orientation(targets), strict=True)
    large = [(target, sprite) for target, sprite in drawn if sprite.shape is heart and sprite.scale >= 3]
    assert {target for target, _ in large} == set(range(16))
    for target, sprite in large:
        picture = sprites.render(sprite).astype(float)
        x, y = centre_of_mass(picture)
        right, down = np.arange(64) + 0.5 - x, (np.arange(64) + 0.5 - y)[:, None]
        far = picture * (right**2 + down**2) ** 2
        turned = math.degrees(math.atan2((far * right).sum(), -(far * down).sum()))
        first, last = (int(word) for word in labels[target].split() if word.isdigit())
        off = (turned - (first + last) / 2 + 180) % 360 - 180
        assert abs(off) < (last - first) / 2 + 4


def test_only_the_symmetry_of_a_shape_hides_its_orientation() -> None:
    """10 of 39 steps are 2.3 degrees more than a square's quarter turn, 20 steps 4.6 more than an ellipse's half."""
    upright = sprites.Sprite(square, 5, 0, 15, 15)

    def difference(sprite: sprites.Sprite, orientation: int) -> int:
        pair = [sprites.render(replace(sprite, orientation=o)).astype(int) for o in (0, orientation)]
        return int(np.abs(pair[0] - pair[1]).sum())

    assert difference(upright, 39) == 0
    assert 0 < difference(upright, 10) < difference(upright, 5) / 4
    assert difference(replace(upright, shape=heart), 10) > 4 * difference(upright, 10)
    assert 0 < difference(replace(upright, shape=ellipse), 20) < difference(replace(upright, shape=ellipse), 10) / 4
