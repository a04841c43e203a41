"""Pre-training leaves out what the backbone is tested on."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import package_files
import pytest

from fpet.data import SOURCES, clip_art, emoji, icons
from pretraining import dataset, packages, pictures
from pretraining.exclusions import excluded_clip_art, excluded_emoji, excluded_icon, excluded_path

SUBGROUPS = {
    "Animals & Nature": (
        "animal-amphibian",
        "animal-bird",
        "animal-bug",
        "animal-mammal",
        "animal-marine",
        "animal-reptile",
        "plant-flower",
        "plant-other",
    ),
    "Food & Drink": ("dishware", "drink", "food-asian", "food-fruit", "food-prepared", "food-sweet", "food-vegetable"),
    "Travel & Places": (
        "hotel",
        "place-building",
        "place-geographic",
        "place-map",
        "place-other",
        "place-religious",
        "sky & weather",
        "transport-air",
        "transport-ground",
        "transport-water",
    ),
    "Activities": ("arts & crafts", "award-medal", "event", "game", "sport"),
}


@pytest.mark.parametrize(("category", "subgroup"), [(key, one) for key, each in SUBGROUPS.items() for one in each])
def test_emoji_of_the_task_are_left_out(category: str, subgroup: str) -> None:
    assert excluded_emoji("anything", category, subgroup)


def test_every_class_of_the_emoji_task_is_left_out() -> None:
    left_in = {("Smileys & Emotion", "face-smiling"), ("Flags", "country-flag"), ("Objects", "book-paper")}
    for category, subgroup in left_in:
        assert not any(subgroup in parts for parts in emoji.CLASSES.values())
        assert not excluded_emoji("anything", category, subgroup)
    left_out = {subgroup for each in SUBGROUPS.values() for subgroup in each}
    assert left_out == {subgroup for parts in emoji.CLASSES.values() for subgroup in parts}


@pytest.mark.parametrize("category", clip_art.CATEGORIES)
def test_clip_art_of_the_task_is_left_out(category: str) -> None:
    assert excluded_clip_art(f"{category}/anything.png")
    assert excluded_clip_art(f"{category}/below/anything.png")
    assert not excluded_clip_art("signs_and_symbols/anything.png")


@pytest.mark.parametrize(
    "name", ["map_symbols/tree_01", "shapes/airplane_01", "filesystems/home7", "signs_and_symbols/Bus-lane", "x/lemon"]
)
def test_clip_art_of_another_category_that_shows_the_same_is_left_out(name: str) -> None:
    assert excluded_clip_art(f"{name}.png")


@pytest.mark.parametrize("name", icons.NAMES)
def test_icons_of_the_task_are_left_out(name: str) -> None:
    assert excluded_icon(f"actions/{name}")
    assert excluded_icon(f"actions/{name}-symbolic")
    assert excluded_clip_art(f"computer/icons/flat-theme/action/{name}.png")
    assert not excluded_icon("actions/bookmark-new")


@pytest.mark.parametrize(
    "path", ["people/t-shirt.png", "people/red_shoes.png", "signs/number-7.png", "office/handbag.png"]
)
def test_clothing_and_digits_are_left_out(path: str) -> None:
    assert excluded_path(path)
    assert excluded_clip_art(path)


def test_a_theme_of_both_is_named_where_the_data_are_described() -> None:
    both = {theme.package for theme in icons.TEST_THEMES} & set(packages.PICTURE_PACKAGES)
    assert both == {"oxygen-icon-theme"}
    for page in ("docs/training.md", "pretraining/README.md"):
        text = " ".join((Path(__file__).parents[1] / page).read_text().split())
        assert re.search(r"81 of (the|its) 249 test images", text)
        assert "Oxygen" in text
    assert "never seen" not in SOURCES["icons"].summary


def test_packages_that_cannot_be_had_are_named_and_skipped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # no package manager can be found
    there = tmp_path / "raw/tango-icon-theme/usr/share"
    there.mkdir(parents=True)
    packages.fetch(tmp_path)
    from_npm = [package.name for package in (*packages.EMOJI_PACKAGES.values(), packages.ICON_SETS)]
    wanted = {*packages.PICTURE_PACKAGES, *packages.FONT_PACKAGES, *from_npm} - {"tango-icon-theme"}
    lines = capsys.readouterr().out.splitlines()
    assert all(line.startswith("skipped: ") for line in lines)
    assert {line.split(" package ")[1].split()[0] for line in lines} == wanted
    assert not any((tmp_path / "raw" / name).exists() for name in wanted)
    assert there.is_dir()


def test_images_are_built_anew_when_packages_are_others_and_kept_when_they_are_gone(tmp_path: Path) -> None:
    raw = tmp_path / "raw"
    folders = [raw / package.name for package in packages.EMOJI_PACKAGES.values()]
    entry = {
        "image": "1.png",
        "short_name": "x",
        "category": "Objects",
        "subcategory": "book-paper",
        "unified": "1F4D4",
    }

    def draw(name: str) -> None:
        for artist, folder in zip(packages.EMOJI_PACKAGES, folders, strict=True):
            package_files.noise(folder / "img" / artist / "64" / name)

    draw("1.png")
    (folders[0] / "emoji.json").write_text(json.dumps([entry]))
    assert len(dataset.load(tmp_path).label) == 2
    draw("2.png")
    (folders[0] / "emoji.json").write_text(json.dumps([entry, {**entry, "image": "2.png"}]))
    assert len(dataset.load(tmp_path).label) == 2
    (raw / "another").mkdir()
    assert len(dataset.load(tmp_path).label) == 4
    shutil.rmtree(raw)
    assert len(dataset.load(tmp_path).label) == 4


def test_emoji_of_both_artists_are_read_as_fetched(tmp_path: Path) -> None:
    folders = {artist: tmp_path / package.name for artist, package in packages.EMOJI_PACKAGES.items()}
    paths = [package_files.noise(folder / "img" / artist / "64" / "1.png") for artist, folder in folders.items()]
    entry = {
        "image": "1.png",
        "short_name": "x",
        "category": "Objects",
        "subcategory": "book-paper",
        "unified": "1F4D4-FE0F",
    }
    left_out = {**entry, "category": "Food & Drink", "subcategory": "drink"}
    (folders["google"] / "emoji.json").write_text(json.dumps([entry, left_out, {**entry, "image": "2.png"}]))
    assert pictures.emoji(tmp_path) == [(path, "emoji/1f4d4") for path in paths]
