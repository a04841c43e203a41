"""Splits given by list files: one image and the number of its class a line."""

from __future__ import annotations

import dataclasses
import hashlib
import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from fpet.data.pictures import SPLITS, Checked, LabelledFile, check_pictures, copies, refuse_gaps, to_dataset
from fpet.data.split import Dataset
from fpet.errors import DataError
from fpet.files import read_bytes, read_lines
from fpet.words import count, first

logger = logging.getLogger(__name__)

LABELS = "labels.txt"
_MOST_CLASSES = 100_000  # numbers beyond it are no classes, but perhaps names of pictures
_SHOWN = 3  # pairs of copies in a warning


@dataclass(frozen=True)
class Lists:
    """The list files of a data set.

    root: its folder. train, val, test: the lists. images: folders below `root` that the lists may mean. classes: how
    many there are, if it is known, else what the training list names. untrained: whether the published training list
    lacks some of them.
    """

    root: Path
    train: Path
    val: Path
    test: Path
    images: tuple[str, ...] = (".",)
    classes: int | None = None
    untrained: bool = False


def load_lists(lists: Lists, choices: Mapping[str, int], *, skip_broken: bool) -> Dataset:
    """The data set that lists describe; choices: what chose among the lists that lie there.

    The labels are the classes' numbers, or the lines of a `labels.txt` beside the lists. Its SHA-256 is also over the
    lists. A list may name a picture several times, which then counts as often. Copies of a picture in two splits, which
    published lists have, are logged as a warning.

    Raises:
        DataError: if a list cannot be read or is malformed, its classes are not those of `lists` or have gaps, an image
            stands in two splits or under two classes, or pictures are broken (see `check_pictures`).
    """
    files = {name: getattr(lists, name) for name in SPLITS}
    splits = {name: _read(lists, path) for name, path in files.items()}
    texts = list(files.values())
    _refuse_conflicts(lists.root, splits)
    labels = tuple(map(str, range(_classes(lists, splits))))
    named = lists.train.parent / LABELS
    if named.is_file():
        labels = _read_labels(named, len(labels))
        texts.append(named)
    if not lists.untrained:
        refuse_gaps(lists.root, labels, splits["train"])
    everything = [picture for pictures in splits.values() for picture in pictures]
    checked = check_pictures(lists.root, everything, skip_broken=skip_broken)
    if not lists.untrained:
        refuse_gaps(lists.root, labels, checked.left(splits["train"]))
    _warn_of_copies(lists.root, splits, checked)
    digests = {path: hashlib.sha256(read_bytes(path, DataError)).hexdigest() for path in texts}
    checked = dataclasses.replace(checked, digests={**checked.digests, **digests})
    return to_dataset(lists.root, labels, splits, checked, choices, fixed_test=True)


def _warn_of_copies(root: Path, splits: Mapping[str, Iterable[LabelledFile]], checked: Checked) -> None:
    if pairs := copies(root, splits, checked):
        logger.warning(
            "%s: %s in two splits, byte by byte, so that its accuracy is not of new pictures alone: %s",
            *(root, count(len(pairs), "picture"), first(pairs, "; ", _SHOWN)),
        )


def _read(lists: Lists, path: Path) -> list[LabelledFile]:
    pictures = []
    for number, line in read_lines(path, DataError):
        try:
            image, label = line.rsplit(maxsplit=1)
            target = int(label)
        except ValueError as error:
            raise DataError(f"{path}, line {number}: {line!r} is not an image and the number of its class") from error
        if target < 0:
            raise DataError(f"{path}, line {number}: there is no class {target}")
        if PurePosixPath(image).is_absolute() or ".." in PurePosixPath(image).parts:
            raise DataError(f"{path}, line {number}: {image} is not in the data's own folder")
        pictures.append(LabelledFile(_find(lists, image), target, f"{path.name}, line {number}"))
    if not pictures:
        raise DataError(f"{path} names no images")
    return pictures


def _find(lists: Lists, image: str) -> Path:
    """Where a listed image lies; in the first of the folders if in none."""
    candidates = [lists.root / folder / image for folder in lists.images]
    with suppress(OSError):  # as of a name that is too long: it is told with the line, as a picture that is not there
        return next((path for path in candidates if path.is_file()), candidates[0])
    return candidates[0]


def _classes(lists: Lists, splits: Mapping[str, list[LabelledFile]]) -> int:
    """How many classes there are; refuses lists that name others."""
    listed = {picture.target for pictures in splits.values() for picture in pictures}
    classes = lists.classes or max(picture.target for picture in splits["train"]) + 1
    for picture in (picture for pictures in splits.values() for picture in pictures):
        if picture.target >= classes:
            known = "classes" if lists.classes else "classes in its training list"
            raise DataError(
                f"{lists.root}: class {picture.target} ({picture.listed}) is out of range: there are {classes} {known}"
            )
    if lists.classes and len(listed) < classes:
        raise DataError(f"{lists.root} has {classes} classes as published, but its lists name {len(listed)}")
    if classes > _MOST_CLASSES:
        raise DataError(f"{lists.train} names class {classes - 1}: there are at most {_MOST_CLASSES}, numbered from 0")
    if classes < 2:
        raise DataError(f"{lists.root}: its training list names one class: a classification needs two")
    return classes


def _read_labels(path: Path, classes: int) -> tuple[str, ...]:
    labels = tuple(line for _, line in read_lines(path, DataError))
    if len(labels) != classes:
        raise DataError(f"{path} names {len(labels)} classes, but there are {classes}")
    if len(set(labels)) < classes:
        twice = next(label for label in labels if labels.count(label) > 1)
        raise DataError(f"{path} names two classes {twice!r}")
    return labels


def _refuse_conflicts(root: Path, splits: Mapping[str, Iterable[LabelledFile]]) -> None:
    """Refuses a picture in two splits, whose test would then not be one, and one under two classes."""
    seen: dict[Path, tuple[str, LabelledFile]] = {}
    for name, pictures in splits.items():
        for picture in pictures:
            split, before = seen.setdefault(picture.path, (name, picture))
            if (split, before.target) != (name, picture.target):
                where = f"{before.listed}, and {picture.listed}"
                what = "two splits" if split != name else "two classes"
                raise DataError(f"{root}: {picture.path.relative_to(root)} is in {what}: {where}")
