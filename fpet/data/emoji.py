"""What an emoji shows: two artists' drawings to learn from, a third artist's to be tested on.

Google's (Noto Emoji, Apache-2.0) and Twitter's (Twemoji, CC-BY-4.0) as the packages emoji-datasource-google and
emoji-datasource-twitter have them; EmojiOne 2 (CC-BY-4.0, Ranks.com) as the package emojione has it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from fpet.data.drawings import Drawing, distinct, targets_of, to_dataset
from fpet.data.grouped import grouped_split
from fpet.data.npm import NpmPackage, npm_folder
from fpet.data.split import TRAIN, VAL, Dataset
from fpet.errors import DataError
from fpet.files import read_bytes

# label -> subcategories of Unicode's list
CLASSES: dict[str, tuple[str, ...]] = {
    "mammal": ("animal-mammal",),
    "bird": ("animal-bird",),
    "other animal": ("animal-amphibian", "animal-reptile", "animal-marine", "animal-bug"),
    "plant": ("plant-flower", "plant-other"),
    "fruit or vegetable": ("food-fruit", "food-vegetable"),
    "dish": ("food-prepared", "food-asian", "food-sweet"),
    "drink or dishware": ("drink", "dishware"),
    "place": ("place-building", "place-geographic", "place-map", "place-other", "place-religious", "hotel"),
    "ground transport": ("transport-ground",),
    "air or water transport": ("transport-air", "transport-water"),
    "sky and weather": ("sky & weather",),
    "activity": ("arts & crafts", "award-medal", "event", "game", "sport"),
}
PACKAGES = {
    "google": NpmPackage(
        "emoji-datasource-google",
        "16.0.0",
        "sha512-ZRexfzs7MVoLnmzZmNsO4TKhnAJp5D++Vm6PpUpH/jEQQlemp3l88CjZ+DoZ2faM9R4QxZkOPJCoT8DlPhfQ3A==",
        ("emoji.json", "img/google/64/"),
    ),
    "twitter": NpmPackage(
        "emoji-datasource-twitter",
        "16.0.0",
        "sha512-7F+uCuHH+7Qnrc15P5tnbvKkg9E6tlzi4MnT2uW1RlN4pLYTza6cP/dstIfSDMtpjFLWuZewWg8jBbuL2eyELQ==",
        ("img/twitter/64/",),
    ),
    "emojione": NpmPackage(
        "emojione",
        "2.2.7",
        "sha512-Gbf8qysc34+TFUS5HPwOUY62v8gjLuPmfVTWUR/zirULSYUe/D3MrvYo0W5Y2gScF1YI7EBe5t81IbD8q144Ag==",
        ("assets/png/",),
    ),
}
# EmojiOne's file names leave these out: the request for a coloured picture, and the joiner of sequences.
_UNWRITTEN = {"fe0f", "200d"}
_TARGETS = {subcategory: i for i, parts in enumerate(CLASSES.values()) for subcategory in parts}


def load_emoji(folder: Path | None, cache: Path) -> Dataset:
    """800 training and 200 validation drawings by Google and Twitter; EmojiOne's of the same emoji to be tested on.

    Drawings of one emoji are both for training or both for validation. Skin tones are left out.

    folder: a node_modules with the packages, if they are not to be read from the cache and fetched.

    Raises:
        DataError: if a package cannot be had, or its list of emoji is not one.
    """
    folders = {artist: npm_folder(package, folder, cache) for artist, package in PACKAGES.items()}
    codes = _codes(folders["google"] / "emoji.json")
    known = distinct([*_drawings(codes, folders["google"], "google"), *_drawings(codes, folders["twitter"], "twitter")])
    train, val, _ = grouped_split(targets_of(known), [drawing.group for drawing in known], TRAIN, VAL)
    test = [
        Drawing(path, target, f"emojione/{path.name}", code)
        for code, target in codes.items()
        if (path := folders["emojione"] / "assets" / "png" / f"{_emojione_name(code)}.png").is_file()
    ]
    splits = [known[i] for i in train], [known[i] for i in val], distinct(test)
    return to_dataset("emoji", tuple(CLASSES), splits, fixed_test=True)


def _codes(path: Path) -> dict[str, int]:
    """Code points such as "1f3f4-200d-2620-fe0f" and the classes, of the emoji that are in one, sorted."""
    try:
        entries = json.loads(read_bytes(path, DataError))
        codes = {entry["unified"].lower(): _TARGETS.get(entry["subcategory"]) for entry in entries}
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise DataError(f"{path} is not a list of emoji: {error!r}") from error
    return {code: target for code, target in sorted(codes.items()) if target is not None}


def _drawings(codes: dict[str, int], folder: Path, artist: str) -> Iterator[Drawing]:
    for code, target in codes.items():
        path = folder / "img" / artist / "64" / f"{code}.png"
        if path.is_file():
            yield Drawing(path, target, f"{artist}/{path.name}", code)


def _emojione_name(code: str) -> str:
    return "-".join(part for part in code.split("-") if part not in _UNWRITTEN)
