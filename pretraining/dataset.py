"""One array of all images, with class, source and hold-out mark per image, built once and cached."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from pretraining import exclusions, glyphs, pictures, symbol_words, symbols

SIZE = 64
GLYPHS = "glyphs"
_FILES: dict[str, Callable[[Path], pictures.Listing]] = {
    "emoji": pictures.emoji,
    "clip art": pictures.clip_art,
    "stamps": pictures.stamps,
    "icons": pictures.icons,
}
_SYMBOLS: dict[str, Callable[[Path], list[symbols.Symbol]]] = {"emoji": symbols.emoji, "symbols": symbols.symbols}
SOURCES = (GLYPHS, *_FILES, "symbols")
_MINIMUM = 2  # images that a class needs to be kept
_HOLD_OUT_PERCENT = 2


@dataclass(frozen=True)
class Images:
    """pixels uint8 [N, SIZE, SIZE, 4] (RGBA, memory-mapped); label, source and held_out are [N]."""

    pixels: np.ndarray[Any, np.dtype[np.uint8]]
    label: np.ndarray[Any, np.dtype[np.int64]]
    source: np.ndarray[Any, np.dtype[np.int64]]
    held_out: np.ndarray[Any, np.dtype[np.bool_]]
    classes: tuple[str, ...]

    def describe(self) -> str:
        """One line: numbers of images by source, of classes and of images held out."""
        counts = ", ".join(f"{name} {int((self.source == i).sum())}" for i, name in enumerate(SOURCES))
        return f"{len(self.label)} images ({counts}), {len(self.classes)} classes, {self.held_out.sum()} held out"


def load(cache: Path) -> Images:
    """The images built from `cache/raw`, from `cache/images.*` where they have been built before: of the same packages
    by the same code, or of packages that are not there any more."""
    index, raw = cache / "images.json", cache / "raw"
    table = json.loads(index.read_text()) if index.is_file() else {}
    if not table or (raw.is_dir() and table.get("origin") != _origin(raw)):
        table = _build(cache) | {"origin": _origin(raw)}
        index.write_text(json.dumps(table))
    return Images(
        pixels=np.load(cache / "images.npy", mmap_mode="r"),
        label=np.asarray(table["label"], dtype=np.int64),
        source=np.asarray(table["source"], dtype=np.int64),
        held_out=np.asarray(table["held_out"], dtype=np.bool_),
        classes=tuple(table["classes"]),
    )


def _origin(raw: Path) -> str:
    """A checksum of what the images depend on: the packages that are there, and the code that draws pictures from them
    and leaves out what the tasks show."""
    code = map(inspect.getsource, (exclusions, glyphs, pictures, symbol_words, symbols))
    packages = sorted(path.name for path in raw.iterdir()) if raw.is_dir() else []
    return hashlib.sha256(json.dumps([*code, packages]).encode()).hexdigest()


def _build(cache: Path) -> dict[str, Any]:
    squares: list[bytes] = []
    rows: list[tuple[str, int, bool]] = []
    seen: set[bytes] = set()
    for source, name, pixels in _everything(cache / "raw"):
        digest = hashlib.sha256(pixels).digest()
        if digest not in seen:  # collections hold many copies; a copy must not land on both sides of the split
            seen.add(digest)
            squares.append(pixels)
            rows.append((name, source, digest[0] * 256 + digest[1] < 65536 * _HOLD_OUT_PERCENT // 100))
    counts = Counter(name for name, _, _ in rows)
    classes = sorted(name for name, count in counts.items() if count >= _MINIMUM)
    number = {name: i for i, name in enumerate(classes)}
    kept = [i for i, (name, _, _) in enumerate(rows) if name in number]
    array = np.lib.format.open_memmap(cache / "images.npy", mode="w+", dtype=np.uint8, shape=(len(kept), SIZE, SIZE, 4))
    for position, i in enumerate(kept):
        array[position] = np.frombuffer(squares[i], dtype=np.uint8).reshape(SIZE, SIZE, 4)
    array.flush()
    return {
        "classes": classes,
        "label": [number[rows[i][0]] for i in kept],
        "source": [rows[i][1] for i in kept],
        "held_out": [rows[i][2] for i in kept],
    }


def _everything(raw: Path) -> Iterator[tuple[int, str, bytes]]:
    """Yields (source number, class name, RGBA bytes) of every image that can be had."""
    for number, source in enumerate(SOURCES[1:], start=1):
        files = _FILES[source](raw) if source in _FILES else []
        drawn = _SYMBOLS[source](raw) if source in _SYMBOLS else []
        if not files and not drawn:
            print(f"skipped {source}: its packages are not there", flush=True)
        everything = chain(pictures.load_all(files, SIZE), symbols.draw_all(drawn, SIZE))
        for name, picture in tqdm(everything, total=len(files) + len(drawn), desc=source):
            yield number, name, picture.tobytes()
    typefaces = glyphs.typefaces(raw)
    if not typefaces:
        print(f"skipped {GLYPHS}: no typeface is there", flush=True)
    for typeface in tqdm(typefaces, desc=GLYPHS):
        try:
            for character, mask in glyphs.draw_all(typeface, SIZE):
                yield 0, f"glyph/{character}", pictures.ink(mask).tobytes()
        except (OSError, ValueError) as error:
            print(f"skipped {typeface.name}: {error}", flush=True)
