"""Scenes show as many objects as their targets say, and the nearest as near."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from scene_targets import cycle

from fpet.data.scenes import counting, ground


def count_islands(mask: NDArray[np.bool_]) -> int:
    """Groups of set pixels that touch by sides or corners."""
    left = set(zip(*(axis.tolist() for axis in np.nonzero(mask)), strict=True))
    islands = 0
    while left:
        islands += 1
        shore = deque([left.pop()])
        while shore:
            row, column = shore.popleft()
            touching = {(row + i, column + j) for i in (-1, 0, 1) for j in (-1, 0, 1)} & left
            left -= touching
            shore.extend(touching)
    return islands


def foreground(picture: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """What differs from the plane of colours through the picture's border, where no object lies."""
    rows, columns = np.mgrid[:64, :64]
    plane = np.stack([np.ones_like(rows), rows, columns], -1).reshape(-1, 3).astype(float)
    border = (np.minimum(rows, columns) == 0).ravel() | (np.maximum(rows, columns) == 63).ravel()
    fit, *_ = np.linalg.lstsq(plane[border], picture.reshape(-1, 3)[border].astype(float), rcond=None)
    return (np.abs(picture.reshape(-1, 3) - plane @ fit).max(1) > 12).reshape(64, 64)


def test_as_many_objects_are_seen_as_the_target_says() -> None:
    targets = cycle(8)
    apart = 0
    for target, scene in zip(targets, counting.sample(targets), strict=True):
        assert counting.LABELS[target] == f"{len(scene.things)} objects"
        gaps = [
            math.hypot(one.x - other.x, one.y - other.y) - one.radius - other.radius
            for i, one in enumerate(scene.things)
            for other in scene.things[:i]
        ]
        if min(gaps) > 2:
            apart += 1
            assert count_islands(foreground(counting.render(scene))) == len(scene.things)
    assert apart > 50


def test_no_object_hides_another() -> None:
    """The colour at its centre is an object's own, whatever is painted over it later."""
    for scene in counting.sample(cycle(8)):
        picture = counting.render(scene)
        for thing in scene.things:
            assert tuple(picture[int(thing.y), int(thing.x)].tolist()) == thing.colour


def saturation(picture: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Only the objects are coloured: sky, floor and shadows are grey."""
    return picture.max(2).astype(np.int64) - picture.min(2)


def test_the_lowest_object_stands_as_near_as_the_target_says() -> None:
    targets = cycle(6)
    errors = []
    for target, scene in zip(targets, ground.sample(targets), strict=True):
        rows = np.nonzero((saturation(ground.render(scene)) > 20).any(1))[0]
        # 64 pixels of focal length and an eye 1.6 m above the floor.
        distance = 64 * 1.6 / (rows.max() + 1 - scene.floor.horizon)
        low, high = (int(word) for word in ground.LABELS[target].split() if word.isdigit())
        errors.append(max(low - distance, distance - high, 0))
    assert max(errors) < 0.8  # a pixel is 0.7 m at 9 m
    assert np.mean(np.array(errors) == 0) > 0.75


def test_nothing_hides_the_nearest_object() -> None:
    for scene in ground.sample(cycle(6)):
        nearest = min(scene.objects, key=lambda thing: thing.distance)
        above_the_floor = 0.5 * nearest.radius * 64 / nearest.distance
        row = ground.row_at(scene.floor, nearest.distance) - above_the_floor
        # The smallest shares a pixel with its rim.
        assert ground.render(scene)[int(row), int(nearest.x)].tolist() == pytest.approx(nearest.colour, abs=30)


def test_the_horizon_is_where_the_sky_ends() -> None:
    scene = ground.sample([5])[0]
    picture = ground.render(replace(scene, objects=()))
    horizon = math.floor(scene.floor.horizon)
    assert (picture[:horizon] == scene.sky).all()
    assert (picture[horizon + 1 :] < scene.sky).all()
