"""What a desktop icon stands for: the same names, of freedesktop.org's list, drawn by the themes that Debian has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fpet.data.debian import package_folder
from fpet.data.drawings import Drawing, distinct, targets_of, to_dataset
from fpet.data.grouped import grouped_split
from fpet.data.split import TRAIN, VAL, Dataset

NAMES = (
    "document-open",
    "document-save",
    "document-print",
    "edit-copy",
    "edit-cut",
    "edit-paste",
    "edit-find",
    "edit-undo",
    "go-home",
    "list-add",
    "view-refresh",
    "process-stop",
    "user-trash",
    "computer",
    "camera-photo",
    "audio-input-microphone",
    "input-keyboard",
    "input-mouse",
    "drive-harddisk",
    "utilities-terminal",
)


@dataclass(frozen=True)
class Theme:
    """A Debian package and the folder of a theme in it; artist: common to themes whose drawings derive from another."""

    package: str
    folder: str
    artist: str


THEMES = (
    Theme("gnome-icon-theme", "gnome", "gnome"),
    Theme("mate-icon-theme", "mate", "gnome"),
    Theme("adwaita-icon-theme", "Adwaita", "gnome"),
    Theme("gnome-colors-common", "gnome-colors-common", "gnome"),
    Theme("tango-icon-theme", "Tango", "tango"),
    Theme("gnome-accessibility-themes", "HighContrast", "high-contrast"),
    Theme("faenza-icon-theme", "Faenza", "faenza"),
    Theme("faenza-icon-theme", "Faenza-Darkest", "faenza"),
    Theme("lxde-icon-theme", "nuoveXT2", "nuovext"),
    Theme("yaru-theme-icon", "Yaru", "hewitt"),
    Theme("moka-icon-theme", "Moka", "hewitt"),
    Theme("paper-icon-theme", "Paper", "hewitt"),
)
# The embedded backbone knows the style of one of them: `pretraining/pictures.py` has Oxygen's icons of other meanings.
TEST_THEMES = (
    Theme("oxygen-icon-theme", "oxygen/base", "oxygen"),
    Theme("elementary-xfce-icon-theme", "elementary-xfce", "elementary"),
    Theme("ukui-themes", "ukui-classical", "ukui"),
)
_SMALLEST = 22  # pixels a side; what is drawn for 16 is a different, coarser picture


def load_icons(folder: Path | None, cache: Path) -> Dataset:
    """800 training and 200 validation icons of THEMES, and all of TEST_THEMES; each size that is drawn is an image.

    All that one artist drew for a name, at any size, is for training or for validation. A link is not a drawing.

    folder: what the packages are unpacked in (`/` where they are installed), if they are not to be read from the cache
    and fetched.

    Raises:
        DataError: if a package cannot be had.
    """
    roots = {
        theme: package_folder(theme.package, f"usr/share/icons/{theme.folder}", folder, cache)
        for theme in (*THEMES, *TEST_THEMES)
    }
    # One pass over all, so that no picture is both for training and for the test.
    drawings = distinct((drawing for theme, root in roots.items() for drawing in _drawings(theme, root)), _SMALLEST)
    tested = tuple(f"{theme.artist}/" for theme in TEST_THEMES)
    known = [drawing for drawing in drawings if not drawing.group.startswith(tested)]
    train, val, _ = grouped_split(targets_of(known), [drawing.group for drawing in known], TRAIN, VAL)
    test = [drawing for drawing in drawings if drawing.group.startswith(tested)]
    return to_dataset("icons", NAMES, ([known[i] for i in train], [known[i] for i in val], test), fixed_test=True)


def _drawings(theme: Theme, root: Path) -> Iterator[Drawing]:
    # <size>/<context>/ in most themes, <context>/<size>/ in others
    for path in sorted(path for name in NAMES for path in root.glob(f"*/*/{name}.png")):
        if not path.is_symlink():
            name = f"{theme.folder}/{path.relative_to(root).as_posix()}"
            yield Drawing(path, NAMES.index(path.stem), name, f"{theme.artist}/{path.stem}")
