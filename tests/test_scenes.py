"""Drawn scenes: the same on every machine, balanced, disjoint, and showing what their targets say."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from fpet.data import SOURCES, Dataset, load_dataset
from fpet.data.scenes import SCENES, counting, ground, sprites, turntable
from fpet.data.scenes.build import Scenes
from fpet.data.scenes.dice import Dice
from fpet.data.scenes.paint import SAMPLES, Patch, average, cos_sin, paint
from fpet.data.scenes.shapes import Shape, circle, cross, ellipse, heart, square, triangle
from fpet.data.scenes.toys import Box, make_plane, make_truck
from fpet.data.split import Split
from fpet.errors import DataError

# As pinned in the package: a change of any pixel or target is a change of the benchmark.
SHA256 = {
    "sprites-location": "5ee5219988eaa9042b5e7199238b7cef2aac6942f747bf2a2986c7a4534f271d",
    "sprites-orientation": "022582952def1eef28410abbcd9dabd82f95d4b7e9be4816deb4274914358da9",
    "scene-count": "063933117e1afabaedc6cdaba087b88794057b52b05264174646c206a920afe8",
    "scene-distance": "d398313ab1fc73f3512b78be545abdaeccb969608cbde27ec568138a0f7a6448",
    "scene-azimuth": "9ef7c8ca0e077fdab58503d640fbadcf57311f2f0b4596d9d107c3794e9b997a",
    "scene-elevation": "c26033c04a0a475d795ffd545a5814c78c330f880d184dc1055a89ec7d14a799",
}
CLASSES = {
    "sprites-location": 16,
    "sprites-orientation": 16,
    "scene-count": 8,
    "scene-distance": 6,
    "scene-azimuth": 18,
    "scene-elevation": 9,
}
DRAW = {
    "sprites-location": sprites.draw_location,
    "sprites-orientation": sprites.draw_orientation,
    "scene-count": counting.draw,
    "scene-distance": ground.draw,
    "scene-azimuth": turntable.draw_azimuth,
    "scene-elevation": turntable.draw_elevation,
}
SOME = 300  # scenes, where each is looked at closely


@pytest.fixture(scope="module", params=SCENES)
def data(request: pytest.FixtureRequest) -> Dataset:
    return load_dataset(request.param)


def cycle(classes: int, count: int = SOME) -> list[int]:
    return [i % classes for i in range(count)]


def pictures(split: Split) -> list[bytes]:
    return [split.images[i].numpy().tobytes() for i in range(len(split))]


def test_scenes_are_sources_of_the_structured_group() -> None:
    assert set(SCENES) == set(SHA256)
    for name, source in SCENES.items():
        assert SOURCES[name] == source
        assert source.group == "structured"


def test_the_sizes_the_balance_and_the_digest_are_fixed(data: Dataset) -> None:
    assert data.sha256 == SHA256[data.name]
    assert (len(data.train), len(data.val), len(data.test)) == (800, 200, 2000)
    assert len(set(data.labels)) == CLASSES[data.name]
    for split in (data.train, data.val, data.test):
        counts = split.targets.bincount(minlength=len(data.labels))
        assert counts.max() - counts.min() <= 2
        assert (len(split.images), split.images[0].shape) == (len(split), (3, 64, 64))


def test_no_two_pictures_are_alike(data: Dataset) -> None:
    every = [picture for split in (data.train, data.val, data.test) for picture in pictures(split)]
    assert len(set(every)) == 3000


@pytest.mark.parametrize(
    ("name", "sample"),
    [
        ("sprites-location", sprites.sample_by_location),
        ("sprites-orientation", sprites.sample_by_orientation),
    ],
)
def test_no_two_sprites_share_all_latents(name: str, sample: Callable[[list[int]], list[sprites.Sprite]]) -> None:
    data = load_dataset(name)
    drawn = sample(torch.cat([split.targets for split in (data.train, data.val, data.test)]).tolist())
    assert data.test.images[1999][0].numpy().tobytes() == sprites.render(drawn[-1]).tobytes()
    # A whole turn is none.
    assert len({replace(sprite, orientation=sprite.orientation % 39) for sprite in drawn}) == 3000


def test_a_folder_beside_drawn_scenes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="scene-count are drawn; nothing is read"):
        load_dataset("scene-count", folder=tmp_path)


def test_pictures_that_come_out_differently_are_refused(tmp_path: Path) -> None:
    scenes = Scenes(
        "grey", "greys", ("dark", "light"), lambda targets: (np.full((2, 2), t, np.uint8) for t in targets), "00"
    )
    with pytest.raises(DataError, match="grey is drawn differently here"):
        scenes.load(None, tmp_path)


def test_pictures_belong_to_their_targets(data: Dataset) -> None:
    drawn = list(DRAW[data.name](data.train.targets[:5].tolist()))
    for i, picture in enumerate(drawn):
        colours = picture if picture.ndim == 3 else np.stack([picture] * 3, -1)
        assert (data.train.images[i].permute(1, 2, 0).numpy() == colours).all()


# Drawing


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


# Sprites


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


# Counting


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


# Distance


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


# Toys


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
