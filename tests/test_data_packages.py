"""Data sets made of packages: what belongs to them, and who is on which side of a split."""

from __future__ import annotations

import json
import os
import platform
import random
import shutil
import struct
from pathlib import Path

import pytest
import torch
from package_files import SIZES, labels, noise, paths, share_pictures, sizes
from picture_files import picture, truncate
from PIL import Image

from fpet.data import Dataset, load_dataset
from fpet.data.clip_art import CATEGORIES
from fpet.data.drawings import Drawing, distinct
from fpet.data.emoji import CLASSES
from fpet.data.grouped import grouped_split
from fpet.data.icons import NAMES, TEST_THEMES, THEMES
from fpet.data.packaged import PACKAGED
from fpet.data.pinned import PINNED
from fpet.errors import DataError

# Splits and pictures


def test_groups_stay_together_and_classes_balanced() -> None:
    dice = random.Random(0)
    groups = [f"{target}-{i}" for target in range(6) for i in range(30) for _ in range(dice.randint(1, 9))]
    targets = torch.tensor([int(group[0]) for group in groups])
    train, val, rest = grouped_split(targets, groups, 500, 120)
    assert (len(train), len(val)) == (500, 120)
    assert len({*train.tolist(), *val.tolist(), *rest.tolist()}) == 620 + len(rest) > 620 + len(groups) // 4
    names = [{groups[i] for i in split} for split in (train, val, rest)]
    assert len(set().union(*names)) == sum(map(len, names))
    shares = targets[val].bincount(minlength=6) / targets.bincount()
    assert (shares - 120 / len(groups)).abs().max() < 0.07
    assert torch.equal(grouped_split(targets, groups, 500, 120)[0], train)


def test_a_group_that_the_validation_cuts_is_in_neither_split() -> None:
    groups = ["a"] * 7 + ["b"] * 7
    train, val, rest = grouped_split(torch.zeros(14, dtype=torch.int64), groups, 100, 4)
    assert [len(train), len(val), len(rest)] == [7, 4, 0]
    assert {groups[i] for i in train}.isdisjoint(groups[i] for i in val)


def test_only_distinct_pictures_that_show_something_are_used(tmp_path: Path) -> None:
    first = noise(tmp_path / "first.png", 30)
    shutil.copy(first, tmp_path / "copy.png")
    with Image.open(first) as image:  # the same picture in another file format of PNG
        image.convert("RGBA").save(tmp_path / "transparent.png")
    picture(tmp_path / "one-colour.png", 7, (30, 30))
    truncate(noise(tmp_path / "truncated.png", 30))
    noise(tmp_path / "small.png", 21)
    header = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", 30_000, 30_000)
    (tmp_path / "huge.png").write_bytes(header + bytes(100))
    (tmp_path / "no-picture.png").write_text("not a picture at all")
    (tmp_path / "dangling.png").symlink_to("nowhere")
    names = ["first", "copy", "transparent", "one-colour", "truncated", "small", "huge", "no-picture", "dangling"]
    drawings = [Drawing(tmp_path / f"{name}.png", 0, name) for name in [*names, "absent"]]
    assert [drawing.name for drawing in distinct(drawings, smallest=22)] == ["first"]
    assert [drawing.name for drawing in distinct(drawings)] == ["first", "small"]


# What belongs to the data sets


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A node_modules with 60 emoji of each class, and some that are of none, as the packages lay them out."""
    root = tmp_path_factory.mktemp("node_modules")
    listed = []
    subcategories = [names[i % len(names)] for i in range(60) for names in CLASSES.values()]
    for number, subcategory in enumerate([*subcategories, "country-flag", "food"]):
        code = f"{0x1F000 + number:x}" + ("-200d-2620-fe0f" if number % 2 else "")
        listed.append({"unified": code.upper(), "category": "C", "subcategory": subcategory})
        noise(root / "emoji-datasource-google" / "img/google/64" / f"{code}.png")
        noise(root / "emoji-datasource-google" / "img/google/64" / f"{code}-1f3fb.png")  # a skin tone
        if number % 5:
            noise(root / "emoji-datasource-twitter" / "img/twitter/64" / f"{code}.png")
        if number % 3:
            noise(root / "emojione" / "assets/png" / f"{code.replace('-200d', '').replace('-fe0f', '')}.png")
    (root / "emoji-datasource-google" / "emoji.json").write_text(json.dumps(listed))
    return root


def test_emoji_are_tested_on_the_third_artist(modules: Path) -> None:
    data = load_dataset("emoji", folder=modules)
    assert data.labels == tuple(CLASSES)
    assert sizes(data) == [*SIZES, 480]
    stems = [{path.stem for path in paths(split)} for split in (data.train, data.val)]
    assert stems[0].isdisjoint(stems[1])
    assert {path.parent.parent.name for path in paths(data.train)} == {"google", "twitter"}
    assert {path.parents[2].name for path in paths(data.test)} == {"emojione"}
    assert not any("1f3fb" in path.stem for split in (data.train, data.val, data.test) for path in paths(split))
    counts = data.val.targets.bincount(minlength=12)
    assert counts.max() - counts.min() <= 4
    assert load_dataset("emoji", folder=modules).sha256 == data.sha256


def test_the_class_of_an_emoji_is_that_of_its_subcategory(modules: Path) -> None:
    data = load_dataset("emoji", folder=modules)
    listed = json.loads((modules / "emoji-datasource-google" / "emoji.json").read_text())
    subcategories = {entry["unified"].lower(): entry["subcategory"] for entry in listed}
    for split in (data.train, data.val):
        for path, label in zip(paths(split), labels(data, split), strict=True):
            assert subcategories[path.stem] in CLASSES[label]


def test_a_list_that_is_not_one_of_emoji_is_refused(modules: Path, tmp_path: Path) -> None:
    shutil.copytree(modules, tmp_path / "modules")
    listed = tmp_path / "modules" / "emoji-datasource-google" / "emoji.json"
    for content in ("{", "[1]", '[{"unified": "1f600"}]'):
        listed.write_text(content)
        with pytest.raises(DataError, match=r"emoji\.json is not a list of emoji"):
            load_dataset("emoji", folder=tmp_path / "modules")
    listed.unlink()
    with pytest.raises(DataError, match=r"no .*emoji\.json, which the npm package emoji-datasource-google should"):
        load_dataset("emoji", folder=tmp_path / "modules")


def test_clip_art_is_of_its_category_and_there_once(tmp_path: Path) -> None:
    root = tmp_path / "usr/share/openclipart/png"
    for number in range(1200):
        word = chr(ord("a") + number // 7 // 3 % 26) * (1 + number // 600)  # series of three drawings or so
        noise(root / CATEGORIES[number % 7] / ("farm" if number % 2 else "") / f"{word}_{number}.png")
    noise(root / "people" / "of-no-class.png")
    noise(root / "recreation" / "games" / "cards" / "white" / "of-no-class.png")
    first = next((root / "animals").glob("*.png"))
    shutil.copy(first, root / "tools" / "again-of-no-class.png")
    (root / "food" / "link-of-no-class.png").symlink_to(first)
    truncate(noise(root / "plants" / "broken-of-no-class.png"))
    data = load_dataset("clip-art", folder=tmp_path)
    assert sizes(data)[:2] == SIZES
    assert 190 <= len(data.test) <= 200  # at most two series are cut
    used = [paths(split) for split in (data.train, data.val, data.test)]
    assert not any("of-no-class" in path.stem for split in used for path in split)
    assert [path.relative_to(root).parts[0] for path in used[1]] == labels(data, data.val)
    series = [{(path.parent, path.stem.partition("_")[0]) for path in split} for split in used]
    assert len(set().union(*series)) == sum(map(len, series))
    counts = data.train.targets.bincount(minlength=7)
    assert counts.max() - counts.min() <= 12


def test_too_few_pictures_are_refused(tmp_path: Path) -> None:
    for number in range(900):
        noise(tmp_path / "usr/share/openclipart/png" / CATEGORIES[number % 7] / f"{number}.png")
    with pytest.raises(DataError, match="clip-art: the packages have too few pictures: 700 of 800 for train"):
        load_dataset("clip-art", folder=tmp_path)


def test_icons_are_tested_on_themes_never_seen(tmp_path: Path) -> None:
    root = tmp_path / "usr/share/icons"
    for theme in (*THEMES, *TEST_THEMES):
        for side in (16, 22, 24, 32, 36, 48):
            for name in [*NAMES, "folder"]:
                noise(root / theme.folder / f"{side}x{side}" / "actions" / f"{name}.png", side)
    shutil.copy(root / "gnome/22x22/actions/edit-cut.png", root / TEST_THEMES[0].folder / "22x22/actions/edit-copy.png")
    data = load_dataset("icons", folder=tmp_path)
    assert sizes(data) == [*SIZES, 3 * 5 * 20 - 1]
    used = [[path.relative_to(root).parts for path in paths(split)] for split in (data.train, data.val, data.test)]
    assert [{parts[0] for parts in split} for split in used][2] == {
        theme.folder.partition("/")[0] for theme in TEST_THEMES
    }
    assert all("16x16" not in parts for split in used for parts in split)
    artists = {theme.folder: theme.artist for theme in THEMES}
    train, val = ({(artists[parts[0]], parts[-1]) for parts in split} for split in used[:2])
    assert train.isdisjoint(val)
    assert [Path(parts[-1]).stem for parts in used[1]] == labels(data, data.val)
    assert set(labels(data, data.val)) == set(NAMES)


# The packages themselves


CACHE = Path(os.environ.get("FPET_CACHE", Path(__file__).parents[1] / ".cache"))


@pytest.fixture(params=PACKAGED)
def real(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Dataset:
    monkeypatch.setenv("PATH", str(tmp_path))  # nothing is fetched: no package manager can be found
    try:
        return load_dataset(request.param, cache=CACHE)
    except DataError as error:
        pytest.skip(f"'fpet data {request.param} --cache {CACHE}' fetches it: {error}")


def debian_12() -> bool:
    """Whether the packages that this machine fetches are those that the Debian data are pinned with."""
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        return False
    return (release["ID"], release.get("VERSION_ID")) == ("debian", "12")


def test_the_real_data_are_those_of_our_tables(real: Dataset) -> None:
    assert sizes(real)[:2] == SIZES
    assert not share_pictures(real)
    if real.name != "emoji" and not debian_12():
        pytest.skip(f"{real.name} may come from other packages than {PINNED[real.name].versions}")
    assert real.sha256 == PINNED[real.name].sha256
    for split in (real.train, real.val, real.test):
        assert set(labels(real, split)) == set(real.labels)
