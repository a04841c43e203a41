"""Small real pictures on disk, and trees of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path

from PIL import Image

from fpet.data import Split


def picture(path: Path, value: int, size: tuple[int, int] = (9, 7)) -> Path:
    """Writes a picture of one colour, 0 to 255, in the format of its suffix; size: width, height."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (value, 0, 255 - value)).save(path)
    return path


def classes(root: Path, counts: dict[str, int], first: int = 0) -> Path:
    """One folder a class with so many PNG pictures, no two alike, of the colours from `first` on."""
    values = itertools.count(first)
    for label, count in counts.items():
        for i in range(count):
            picture(root / label / f"{i:02}.png", next(values))
    return root


def truncate(path: Path) -> None:
    """Cuts the last bytes off."""
    path.write_bytes(path.read_bytes()[:-30])


def write_list(path: Path, root: Path, entries: Iterable[tuple[str, int]]) -> None:
    """Writes a list file, and the pictures below `root` that it names; all are alike."""
    entries = list(entries)
    content = picture(root / entries[0][0], 77).read_bytes()
    for name, _ in entries:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{name} {target}\n" for name, target in entries))


def everything(split: Split) -> list[bytes]:
    """The pixels of a split's pictures."""
    return [split.images[i].numpy().tobytes() for i in range(len(split))]
