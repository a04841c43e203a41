"""Drawn scenes: the same on every machine, balanced and disjoint."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fpet.data import SOURCES, Dataset, load_dataset
from fpet.data.scenes import SCENES, counting, ground, sprites, turntable
from fpet.data.scenes.build import Scenes
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


@pytest.fixture(scope="module", params=SCENES)
def data(request: pytest.FixtureRequest) -> Dataset:
    return load_dataset(request.param)


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
