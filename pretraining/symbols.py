"""What drawings of many icon sets stand for: sets of one colour, sets in colours, and emoji of further artists.

Iconify publishes them in one format, a set to a file (npm `@iconify/json`). What an icon stands for is its name without
the words of its style ("arrow-left-20-filled" and "outline-arrow-left" are both an arrow to the left); a name that is
drawn in many sets is a class.
"""

from __future__ import annotations

import io
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

from pretraining.exclusions import excluded_symbol
from pretraining.packages import ICON_SETS
from pretraining.pictures import EMOJI_TABLE, emoji_class, emoji_entries, in_square, ink, is_empty

_LEAST = 4  # sets that have to draw a name
_MOST = 3  # drawings of a name in one set, which are mostly one drawing in several styles
_NOT_FREE = "CC-BY-NC"
_OTHER_CATEGORIES = frozenset({"Emoji", "Logos", "Programming"})
_STYLES = frozenset(
    """
    alt baseline black bold broken color colour duo duotone fill filled flat ios l light line linear ltr md micro mini o
    outline outlined outlines r regular remix round rounded rtl s sharp solid stroke thick thin tone two twotone variant
    """.split()  # noqa: SIM905
)
_SIZE = re.compile(r"\d+(px|x\d+)?")
# The artists of `pictures.emoji` are among the sets too, and so is EmojiOne, by whose drawings `emoji` is tested.
_EMOJI_SETS = ("openmoji", "fluent-emoji", "fluent-emoji-flat", "fluent-emoji-high-contrast", "noto-v1")
_CODES = "openmoji"  # whose table says which characters the common names stand for


@dataclass(frozen=True)
class Symbol:
    """A drawing: the class it is of, its SVG, and whether it has colours of its own."""

    name: str
    svg: str
    coloured: bool


def symbols(raw: Path) -> list[Symbol]:
    """Drawings of the names that at least four sets draw, by set and name; three of each name in a set."""
    found: dict[str, dict[str, list[Symbol]]] = defaultdict(lambda: defaultdict(list))
    for prefix, information in _sets(raw):
        coloured = bool(information.get("palette"))
        icons = _read(raw, prefix)
        for icon in icons["icons"]:
            name = meaning(icon)
            if not excluded_symbol(name):
                found[name][prefix].append(Symbol(f"symbol/{name}", _svg(icons, icon), coloured))
    often = {name: sets for name, sets in found.items() if len(sets) >= _LEAST}
    return [one for sets in often.values() for drawings in sets.values() for one in _spread(drawings)]


def emoji(raw: Path) -> list[Symbol]:
    """Emoji of further artists, of the classes of `pictures.emoji`."""
    if not ((raw / EMOJI_TABLE).is_file() and _file(raw, _CODES).is_file()):
        return []
    classes = {emoji_class(entry) for entry in emoji_entries(raw)}
    names = {name: f"emoji/{code}" for code, name in _read(raw, _CODES)["chars"].items()}
    return [
        Symbol(names[icon], _svg(icons, icon), coloured=not prefix.endswith("-contrast"))
        for prefix in _EMOJI_SETS
        if _file(raw, prefix).is_file()
        for icons in [_read(raw, prefix)]
        for icon in icons["icons"]
        if names.get(icon) in classes
    ]


def meaning(icon: str) -> str:
    """An icon's name without the words of style and size around it."""
    words = icon.split("-")
    while len(words) > 1 and (words[-1] in _STYLES or _SIZE.fullmatch(words[-1])):
        words.pop()
    while len(words) > 1 and words[0] in _STYLES:
        words.pop(0)
    return "-".join(words)


def draw_all(drawings: list[Symbol], size: int) -> Iterator[tuple[str, Image.Image]]:
    """Yields (class, RGBA picture of size x size) of each that can be drawn and seen; without colours, white ink."""
    for symbol in drawings:
        try:
            picture = _render(symbol.svg, size)
        except ValueError as error:
            print(f"skipped a drawing of {symbol.name}: {error}", flush=True)
            continue
        if is_empty(picture):
            continue
        square = in_square(picture, size)
        yield symbol.name, square if symbol.coloured else ink(square.getchannel("A"))


def _render(svg: str, size: int) -> Image.Image:
    """The drawing, RGBA, its longer side `size` pixels."""
    import resvg_py  # noqa: PLC0415  # a machine that trains on images drawn elsewhere needs none

    with Image.open(io.BytesIO(bytes(resvg_py.svg_to_bytes(svg_string=svg, width=size, height=size)))) as image:
        return image.convert("RGBA")


def _sets(raw: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    table = raw / ICON_SETS.name / "collections.json"
    if not table.is_file():
        return
    for prefix, information in json.loads(table.read_text()).items():
        licence = information["license"].get("spdx", "")
        is_emoji = "emoji" in prefix
        if not (licence.startswith(_NOT_FREE) or is_emoji or information.get("category") in _OTHER_CATEGORIES):
            yield prefix, information


def _file(raw: Path, prefix: str) -> Path:
    return raw / ICON_SETS.name / "json" / f"{prefix}.json"


def _read(raw: Path, prefix: str) -> dict[str, Any]:
    icons: dict[str, Any] = json.loads(_file(raw, prefix).read_text())
    return icons


def _svg(icons: dict[str, Any], icon: str) -> str:
    """A document of one icon: its own box, or else its set's, or else 16 x 16, as Iconify's format has it."""
    own = icons["icons"][icon]
    left, top, width, height = (
        own.get(key, icons.get(key, default))
        for key, default in (("left", 0), ("top", 0), ("width", 16), ("height", 16))
    )
    box = f'viewBox="{left} {top} {width} {height}" width="{width}" height="{height}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {box}>{own["body"]}</svg>'


def _spread(drawings: list[Symbol]) -> list[Symbol]:
    """At most three of a set's drawings of a name, from all over their list."""
    count = min(len(drawings), _MOST)
    return [drawings[i * len(drawings) // count] for i in range(count)]
