"""Emoji, clip art, stamps and icons: lists of (file, class name)."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

from PIL import Image

from fpet.data.drawings import LARGEST
from pretraining.exclusions import excluded_clip_art, excluded_emoji, excluded_icon, excluded_stamp
from pretraining.packages import EMOJI_PACKAGES

Listing = list[tuple[Path, str]]
EMOJI_TABLE = Path(EMOJI_PACKAGES["google"].name, "emoji.json")  # Twitter's package has the same
_ICON_FOLDERS = {
    "oxygen": "oxygen-icon-theme/usr/share/icons/oxygen/base",
    "gnome": "gnome-icon-theme/usr/share/icons/gnome",
    "tango": "tango-icon-theme/usr/share/icons/Tango",
}
_ICON_SIZES = ("128x128", "256x256", "64x64", "48x48", "32x32")


def emoji(raw: Path) -> Listing:
    """Emoji of two artists; the class is the character."""
    return [
        (path, emoji_class(entry))
        for artist, package in EMOJI_PACKAGES.items()
        for entry in emoji_entries(raw)
        if (path := raw / package.name / "img" / artist / "64" / entry["image"]).is_file()
    ]


def emoji_entries(raw: Path) -> list[dict[str, str]]:
    """The emoji that are not left out, as their table has them; none where there is no table."""
    table = raw / EMOJI_TABLE
    entries = json.loads(table.read_text()) if table.is_file() else []
    return [e for e in entries if not excluded_emoji(e["short_name"], e["category"], e["subcategory"])]


def emoji_class(entry: dict[str, str]) -> str:
    """The class of an emoji: its code points ("1f9d1-200d-1f680"), without the request for a coloured picture."""
    return "emoji/" + "-".join(code for code in entry["unified"].lower().split("-") if code != "fe0f")


def clip_art(raw: Path) -> Listing:
    """Open Clip Art; the class is the category folder."""
    return _by_folder(raw / "openclipart-png/usr/share/openclipart/png", "clipart", excluded_clip_art)


def stamps(raw: Path) -> Listing:
    """Tux Paint's stamps (photographs and drawings); the class is the category folder."""
    return _by_folder(raw / "tuxpaint-stamps-default/usr/share/tuxpaint/stamps", "stamp", excluded_stamp)


def icons(raw: Path) -> Listing:
    """Desktop icons; the class is the icon's name where two themes draw it, else the folder (actions, apps, ...)."""
    found: dict[str, dict[str, Path]] = defaultdict(dict)
    for theme, folder in _ICON_FOLDERS.items():
        for size in _ICON_SIZES:
            for path in sorted((raw / folder / size).glob("*/*.png")):
                name = f"{path.parent.name}/{path.stem}"
                if path.is_file() and not path.is_symlink() and not excluded_icon(name):
                    found[name].setdefault(theme, path)
    return [
        (path, f"icon/{name if len(themes) > 1 else name.split('/')[0]}")
        for name, themes in sorted(found.items())
        for path in themes.values()
    ]


def _by_folder(root: Path, prefix: str, excluded: Callable[[str], bool]) -> Listing:
    listing: Listing = []
    for path in sorted(root.rglob("*.png")):
        relative = path.relative_to(root)
        if not path.is_symlink() and not excluded(relative.as_posix()):
            listing.append((path, f"{prefix}/{relative.parent}"))
    return listing


def load_all(listing: Listing, size: int) -> Iterator[tuple[str, Image.Image]]:
    """Yields (class, RGBA picture of size x size, aspect ratio kept) for each readable, non-empty picture."""
    for path, name in listing:
        try:
            with Image.open(path) as image:
                if image.width * image.height > LARGEST:
                    print(f"skipped {path.name}: {image.width}x{image.height} pixels", flush=True)
                    continue
                picture = image.convert("RGBA")
        except (OSError, ValueError, NotImplementedError, Image.DecompressionBombError) as error:
            print(f"skipped {path.name}: {error}", flush=True)
            continue
        if is_empty(picture):
            continue
        picture.thumbnail((size, size), Image.Resampling.LANCZOS)
        yield name, in_square(picture, size)


def is_empty(picture: Image.Image) -> bool:
    """Whether nothing of an RGBA picture can be seen."""
    return picture.getchannel("A").getextrema() == (0, 0)


def in_square(picture: Image.Image, size: int) -> Image.Image:
    """An RGBA picture of at most size x size in the middle of a transparent one of that size."""
    square = Image.new("RGBA", (size, size))
    square.paste(picture, ((size - picture.width) // 2, (size - picture.height) // 2))
    return square


def ink(mask: Image.Image) -> Image.Image:
    """An alpha mask "L" as images have it that get their colour in training: white all over, RGBA."""
    white = Image.new("RGBA", mask.size, "white")
    white.putalpha(mask)
    return white
