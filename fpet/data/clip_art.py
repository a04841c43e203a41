"""What a drawing of the Open Clip Art Library (public domain) shows, as the Debian package openclipart-png has them."""

from __future__ import annotations

import re
from pathlib import Path

from fpet.data.debian import package_folder
from fpet.data.drawings import Drawing, distinct, targets_of, to_dataset
from fpet.data.grouped import grouped_split
from fpet.data.split import TRAIN, VAL, Dataset

PACKAGE = "openclipart-png"
CATEGORIES = ("animals", "buildings", "food", "plants", "recreation", "tools", "transportation")
_INSIDE = "usr/share/openclipart/png"
_CARDS = "recreation/games/cards"  # a sixth of all pictures: decks that differ in the border of the cards


def load_clip_art(folder: Path | None, cache: Path) -> Dataset:
    """800 training and 200 validation drawings, drawn at random in proportion to the categories; the rest is the test.

    Drawings of one folder whose file names begin with the same word are mostly variants of one another, and are on the
    same side. Playing cards are left out. A link is not a drawing: its category is where the file lies.

    folder: what the package is unpacked in (`/` where it is installed), if it is not to be read from the cache and
    fetched.

    Raises:
        DataError: if the package cannot be had.
    """
    root = package_folder(PACKAGE, _INSIDE, folder, cache)
    drawings = distinct(
        Drawing(path, target, path.relative_to(root / category).as_posix(), str(path.parent / _series(path)))
        for target, category in enumerate(CATEGORIES)
        for path in sorted((root / category).rglob("*.png"))
        if not path.is_symlink() and not path.is_relative_to(root / _CARDS)
    )
    splits = grouped_split(targets_of(drawings), [drawing.group for drawing in drawings], TRAIN, VAL)
    return to_dataset("clip-art", CATEGORIES, [[drawings[i] for i in split] for split in splits])


def _series(path: Path) -> str:
    """The first word of the file's name: "lemon" of lemon_01_someone.png."""
    return re.split(r"[\W\d_]", path.stem)[0] or path.stem
