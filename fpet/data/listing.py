"""What lies in a folder of pictures, without what systems leave about in it."""

from __future__ import annotations

from pathlib import Path
from unicodedata import category, normalize

from fpet.errors import DataError
from fpet.system_errors import os_errors_as
from fpet.words import count

# What Windows, a Mac, its archiver and Synology's indexer leave among pictures; the last holds small copies of them.
_CLUTTER = ("thumbs.db", "desktop.ini", "icon\r", "__macosx", "@eadir")
_UNSPEAKABLE = ("Cc", "Cs")  # control characters, and bytes that are no text


def visible(folder: Path) -> list[Path]:
    """What lies directly in a folder, sorted, without hidden files and what systems leave about.

    Raises:
        DataError: if the folder cannot be read.
    """
    with os_errors_as(DataError, f"{folder}: the folder cannot be read"):
        paths = sorted(folder.iterdir())
    return [path for path in paths if not path.name.startswith(".") and path.name.lower() not in _CLUTTER]


def class_names(folder: Path) -> tuple[str, ...]:
    """The names of the folders in it, `composed` and sorted.

    Raises:
        DataError: if there are not two, or the name of one cannot be a label, or looks like another's.
    """
    names = [path.name for path in visible(folder) if path.is_dir()]
    if len(names) < 2:
        only = f", {names[0]}/; should the classes lie below, give {folder / names[0]}" if names else ""
        raise DataError(f"{folder} has {count(len(names), 'class folder')}{only}: a classification needs two")
    for label in names:
        if any(category(character) in _UNSPEAKABLE for character in label):
            raise DataError(f"{folder}: the class folder {label!r} has a control character in its name; rename it")
    alike: dict[str, str] = {}
    for label in names:
        other = alike.setdefault(composed(label), label)
        if other != label:
            raise DataError(
                f"{folder}: the class folders {other!a} and {label!a} look the same; put their pictures into one"
            )
    return tuple(sorted(alike))


def composed(name: str) -> str:
    """A name with each accented letter as one character (NFC): a Mac may write letter and accent apart."""
    return normalize("NFC", name)
