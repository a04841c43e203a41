"""Letters of many typefaces: one class a letter, whole families for training, validation or the test."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from fpet.data.debian import package_folder
from fpet.data.digest import sha256_of_files
from fpet.data.drawings import refuse_shortage
from fpet.data.pictures import SPLITS
from fpet.data.sample import stratified_order
from fpet.data.split import TRAIN, VAL, Dataset, ImageTensor, Split
from fpet.errors import DataError
from fpet.files import read_bytes

_SIZE, _MARGIN = 64, 6  # pixels
_MEASURE = 512  # pixels an em at which a typeface is measured before it is drawn at its size
_SUFFIXES = {".otf", ".ttf", ".pfa"}
_WHITE, _BLACK = 255, 0
_ORIGIN = "ls"  # Pillow's name for the left end of the base line


@dataclass(frozen=True)
class Alphabet:
    """A data set of letters.

    letters: label -> character. packages: Debian packages with the typefaces. families: split -> names of families, as
    the font files give them; families that were drawn from one another are in the same split.
    """

    name: str
    letters: Mapping[str, str]
    packages: tuple[str, ...]
    families: Mapping[str, tuple[str, ...]]

    def load(self, folder: Path | None, cache: Path) -> Dataset:
        """800 training and 200 validation letters, a random and balanced choice of those of their families, and all of
        the test's.

        Letters are black on white, 64x64 pixels. A typeface is scaled so that its largest letter leaves a margin of 6;
        all its letters have that scale and one base line, and are centred from left to right. Of two that are equal
        pixel by pixel the first is kept. The SHA-256 is `sha256_of_files` of the font files, each named
        `<split>/<label>/<style>`: the pixels may differ in the last bit between versions of FreeType.

        folder: what the packages are unpacked in (`/` where they are installed), if they are not to be read from the
        cache and fetched.

        Raises:
            DataError: if a package cannot be had, lacks a family, or a font file cannot be read.
        """
        roots = [package_folder(package, "usr/share/fonts", folder, cache) for package in self.packages]
        styles = _styles(list(dict.fromkeys(roots)), self)
        labels, letters = tuple(self.letters), "".join(self.letters.values())
        seen: set[bytes] = set()
        digests: dict[str, str] = {}
        splits = []
        for split, count in zip(SPLITS, (TRAIN, VAL, None), strict=True):
            paths = [path for family in self.families[split] for path in styles[family]]
            drawn = [letter for path in paths for letter in _draw_once(path, letters, seen)]
            targets = torch.tensor([letter.target for letter in drawn])
            chosen = stratified_order(targets)[:count]
            splits.append(Split(ImageTensor(torch.stack([drawn[i].pixels for i in chosen])), targets[chosen]))
            files = {path: hashlib.sha256(read_bytes(path, DataError)).hexdigest() for path in paths}
            for letter in (drawn[i] for i in chosen):
                digests[f"{split}/{labels[letter.target]}/{letter.path.stem}"] = files[letter.path]
        refuse_shortage(self.name, splits)
        train, val, test = splits
        return Dataset(self.name, labels, sha256_of_files(digests), train, val, test, fixed_test=True)


@dataclass(frozen=True)
class _Letter:
    """path: the font file. pixels: uint8 [64, 64]."""

    path: Path
    target: int
    pixels: Tensor


def _styles(roots: Sequence[Path], alphabet: Alphabet) -> dict[str, list[Path]]:
    """The font files of each family, sorted by name, each style in one format."""
    found: dict[str, dict[str, Path]] = {family: {} for names in alphabet.families.values() for family in names}
    for path in (path for root in roots for path in sorted(root.rglob("*"))):
        if path.suffix in _SUFFIXES and (family := _family(path)) in found:
            found[family].setdefault(path.stem, path)
    missing = [family for family, styles in found.items() if not styles]
    if missing:
        raise DataError(f"{', '.join(map(str, roots))}: no font is of the family {', '.join(missing)}")
    return {family: [styles[stem] for stem in sorted(styles)] for family, styles in found.items()}


def _family(path: Path) -> str:
    """What the font calls its family; empty if the file is no font."""
    try:
        return ImageFont.truetype(path, _MEASURE).getname()[0] or ""
    except OSError:
        return ""


def _draw_once(path: Path, letters: str, seen: set[bytes]) -> Iterator[_Letter]:
    """The letters that are not among those seen, which they join."""
    for target, pixels in enumerate(draw(path, letters)):
        content = pixels.numpy().tobytes()
        if content not in seen:
            seen.add(content)
            yield _Letter(path, target, pixels)


def draw(path: Path, letters: str) -> Tensor:
    """The letters as a font file draws them, uint8 [N, 64, 64]; see `Alphabet.load`.

    Raises:
        DataError: if the file is not a font that Pillow reads.
    """
    measure = _open(path, _MEASURE)
    left, top, right, bottom = np.array([_ink(measure, letter) for letter in letters]).T
    scale = (_SIZE - 2 * _MARGIN) / max(1, (right - left).max(), bottom.max() - top.min())
    font = _open(path, _MEASURE * scale)
    base = _SIZE / 2 - scale * (top.min() + bottom.max()) / 2
    pictures = []
    for letter, start in zip(letters, _SIZE / 2 - scale * (left + right) / 2, strict=True):
        picture = Image.new("L", (_SIZE, _SIZE), _WHITE)
        ImageDraw.Draw(picture).text((start, base), letter, fill=_BLACK, font=font, anchor=_ORIGIN)
        pictures.append(np.array(picture))
    return torch.from_numpy(np.stack(pictures))


def _ink(font: ImageFont.FreeTypeFont, letter: str) -> tuple[int, int, int, int]:
    """Left, top, right and bottom of what is drawn, from the letter's origin; `getbbox` would add the space beside."""
    mask, (x, y) = font.getmask2(letter, anchor=_ORIGIN)
    left, top, right, bottom = mask.getbbox() or (0, 0, 0, 0)
    return x + left, y + top, x + right, y + bottom


def _open(path: Path, size: float) -> ImageFont.FreeTypeFont:
    try:
        return ImageFont.truetype(path, size, layout_engine=ImageFont.Layout.BASIC)
    except OSError as error:
        raise DataError(f"{path} is not a readable font: {error}") from error
