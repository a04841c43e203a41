"""Letters of typefaces that the tests draw themselves: whole families on one side of a split."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from font_files import write_font
from package_files import SIZES, share_pictures, sizes

from fpet.data import Dataset
from fpet.data.typefaces import Alphabet, draw
from fpet.errors import DataError


@pytest.fixture
def alphabet(tmp_path: Path) -> Callable[..., Dataset]:
    """Writes families of random polygons below a folder and loads an alphabet of 25 letters from it."""
    letters = {f"letter {code}": chr(code) for code in range(0x5D0, 0x5E9)}
    families = {"train": 40, "val": 12, "test": 4}
    names = {split: tuple(f"{split} {i}" for i in range(count)) for split, count in families.items()}
    for family in (family for split in names.values() for family in split):
        dice = random.Random(family)
        glyphs = {
            letter: [(0, 0), (0, dice.randint(500, 900)), (dice.randint(400, 900), 300)] for letter in letters.values()
        }
        folder = tmp_path / "usr/share/fonts/truetype"
        write_font(folder / f"{family}.ttf", family, glyphs)
        write_font(folder / "none" / f"{family}.ttf", f"not {family}", glyphs)
    write_font(tmp_path / "usr/share/fonts/truetype/z" / "test 0.ttf", "test 0", glyphs)  # another format of a style
    (tmp_path / "usr/share/fonts/broken.ttf").write_text("no font")

    def load(**changed: tuple[str, ...]) -> Dataset:
        return Alphabet("letters", letters, ("fonts",), names | changed).load(tmp_path, tmp_path)

    return load


def test_letters_are_tested_on_families_never_seen(alphabet: Callable[..., Dataset]) -> None:
    data = alphabet()
    assert sizes(data) == [*SIZES, 100]
    assert data.train.images[0].shape == (3, 64, 64)
    for split in (data.train, data.val, data.test):
        counts = split.targets.bincount(minlength=25)
        assert counts.max() - counts.min() <= 1
    assert not share_pictures(data)
    assert alphabet().sha256 == data.sha256
    assert alphabet(test=("test 1", "test 2")).sha256 != data.sha256


def test_a_family_drawn_from_another_adds_nothing(alphabet: Callable[..., Dataset]) -> None:
    assert len(alphabet(test=("test 0", "not test 0", "not train 0")).test) == 25


def test_a_missing_family_is_named(alphabet: Callable[..., Dataset]) -> None:
    with pytest.raises(DataError, match=r"no font is of the family Comic, Tragic$"):
        alphabet(val=("val 1", "Comic", "Tragic"))


def test_letters_keep_their_size_and_base_line_and_are_centred(tmp_path: Path) -> None:
    square = [(200, 0), (200, 600), (800, 600), (800, 0)]
    low = [(100, -200), (100, 0), (300, 0), (300, -200)]
    pixels = draw(write_font(tmp_path / "a.ttf", "A", {"a": square, "b": low}), "ab")
    assert (pixels.dtype, pixels.shape) == (torch.uint8, (2, 64, 64))
    boxes = []
    for letter in pixels:
        rows, columns = (letter < 128).nonzero(as_tuple=True)
        boxes.append([int(columns.min()), int(columns.max()) + 1, int(rows.min()), int(rows.max()) + 1])
    (left, right, top, base), (low_left, low_right, low_top, low_bottom) = boxes
    assert (top, low_bottom) == pytest.approx((6, 58), abs=1)  # both together fill the picture but its margin
    assert low_top == pytest.approx(base, abs=1)
    assert (left + right, low_left + low_right) == pytest.approx((64, 64), abs=2)
    assert (right - left) / (low_right - low_left) == pytest.approx(3, abs=0.3)
    (tmp_path / "b.ttf").write_text("no font")
    with pytest.raises(DataError, match=r"b\.ttf is not a readable font"):
        draw(tmp_path / "b.ttf", "ab")
