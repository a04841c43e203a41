"""Toys on the turntable are turned, seen from above and lit as their targets say."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scene_targets import cycle

from fpet.data.scenes import turntable
from fpet.data.scenes.dice import Dice
from fpet.data.scenes.toys import Box, make_plane, make_truck


def silhouette(view: turntable.View) -> NDArray[np.bool_]:
    light, dark = (turntable.render(replace(view, background=level)) for level in (255, 0))
    return light.astype(int) - dark < 128


def axis_of(view: turntable.View) -> float:
    """Degrees of the silhouette's long axis as on the table, by its second moments; 0 points to the camera."""
    rows, columns = np.nonzero(silhouette(view))
    down = (rows - rows.mean()) / math.sin(math.radians(view.elevation))  # as if seen from straight above
    right = columns - columns.mean()
    return math.degrees(math.atan2(2 * (right * down).sum(), (down**2).sum() - (right**2).sum())) / 2


def test_a_truck_is_turned_as_its_azimuth_says() -> None:
    for target, view in zip(cycle(18, 18), turntable.sample_by_azimuth(cycle(18, 18)), strict=True):
        assert turntable.AZIMUTH_LABELS[target] == f"azimuth {view.azimuth} degrees"
        truck = replace(view, toy=tuple(make_truck(Dice(0))), elevation=70)
        assert abs((axis_of(truck) - view.azimuth + 90) % 180 - 90) < 10


def test_the_front_faces_the_camera_at_azimuth_zero_and_then_the_right() -> None:
    front, left = Box((0.5, -0.1, 0), (1, 0.1, 0.1), 1.0), Box((-0.1, 0.5, 0), (0.1, 1, 0.1), 1.0)
    counterweights = (Box((-1, -0.1, 0), (-0.9, 0.1, 0.1), 0.0), Box((-0.1, -1, 0), (0.1, -0.9, 0.1), 0.0))

    def place(box: Box, azimuth: int) -> str:
        view = turntable.View((box, *counterweights), azimuth, 70, (32, 32), 20, (0.0, 0.6, 0.8), 0)
        down, right = np.argwhere(turntable.render(view) > 100).mean(0) - 31.5
        vertical, horizontal = ("below" if down > 0 else "above"), ("right" if right > 0 else "left")
        return vertical if abs(down) > abs(right) else horizontal

    assert [place(front, azimuth) for azimuth in (0, 90, 180, 270)] == ["below", "right", "above", "left"]
    assert [place(left, azimuth) for azimuth in (0, 90, 180, 270)] == ["right", "above", "left", "below"]


def test_a_flat_toy_is_seen_wider_from_higher() -> None:
    views = turntable.sample_by_elevation(cycle(9, 9))
    assert [view.elevation for view in views] == list(range(30, 75, 5))
    labels = [f"elevation {view.elevation} degrees" for view in views]
    assert labels == list(turntable.ELEVATION_LABELS)
    toy = tuple(make_plane(Dice(1)))
    areas = [silhouette(replace(views[0], toy=toy, elevation=view.elevation)).sum() for view in views]
    assert areas == sorted(set(areas))


def test_every_azimuth_and_elevation_shows_another_picture() -> None:
    view = turntable.sample_by_azimuth([0])[0]
    for names, values in (("azimuth", turntable.AZIMUTHS), ("elevation", turntable.ELEVATIONS)):
        drawn = {turntable.render(replace(view, **{names: value})).tobytes() for value in values}
        assert len(drawn) == len(values)


def test_a_cube_is_lit_by_lambert_and_hides_what_is_behind() -> None:
    cube = Box((-0.5, -0.5, -0.5), (0.5, 0.5, 0.5), 1.0)
    behind = Box((-0.9, -0.1, -0.1), (-0.6, 0.1, 0.1), 0.1)
    view = turntable.View((cube, behind), 0, 30, (32, 32), 20, (0.0, 0.6, 0.8), 7)
    picture = turntable.render(view)
    # Seen from 30 degrees, the front is turned up by 60 from the picture's up and lit by 0.8 cos 30 - 0.6 sin 30.
    normals = {
        "front": (-math.sin(math.pi / 6), math.cos(math.pi / 6)),
        "top": (math.cos(math.pi / 6), math.sin(math.pi / 6)),
    }
    levels = {name: round(255 * (0.35 + 0.65 * (0.6 * up + 0.8 * towards))) for name, (up, towards) in normals.items()}
    assert set(np.unique(picture[:, 32]).tolist()) >= {7, levels["front"], levels["top"]}
    assert int(picture[38, 32]) == levels["front"]
    # 20 pixels wide, and no darker box shines through.
    assert (picture[36] != 7).sum() == 20
    assert picture[20:40, 24:40].min() >= min(levels.values())
