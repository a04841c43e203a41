"""A user's own pictures in one folder a class: split into train/, val/ and test/, or to be split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from unicodedata import category

import torch

from fpet.data.pictures import Checked, Picture, check_pictures, refuse_gaps, to_dataset
from fpet.data.reading import Reading
from fpet.data.sample import stratified_order
from fpet.data.split import Dataset
from fpet.errors import DataError
from fpet.words import count, first

# Shares of a folder that is to be split; the rest trains.
_VAL_SHARE = {"val": 0.1}
_SHARES = {**_VAL_SHARE, "test": 0.2}

_VALIDATION = ("val", "valid", "validation")
_NAMES = {"train", *_VALIDATION, "test"}
_NEEDED = ("train", "test")
_CLUTTER = ("thumbs.db", "desktop.ini")  # what Windows leaves in folders of pictures
_UNSPEAKABLE = ("Cc", "Cs")  # control characters, and bytes that are no text


def has_splits(root: Path) -> bool:
    """Whether a folder is meant to hold train/, val/ and test/ rather than classes, of which one may be named so."""
    names = _folder_names(root)
    return len(names & _NAMES) > 1 or names <= _NAMES


def has_test_alone(root: Path) -> bool:
    """Whether a folder has test/ and no other folder."""
    return _folder_names(root) == {"test"}


def load_test(root: Path, reading: Reading) -> Dataset:
    """The data set in a folder with nothing but `test/<class>/*`: there are no images to train on or to validate with.

    Classes are the sorted folder names of test/, of which some may be empty.

    Raises:
        DataError: if there are not two classes, there is no picture, pictures are broken (see `check_pictures`), or an
            option does not apply.
    """
    reading.allow(f"{root}, which has test/ alone", "skip_broken")
    labels = _labels(root / "test")
    pictures = _pictures(root / "test", labels)
    checked = check_pictures(root, pictures, skip_broken=reading.skip_broken)
    return to_dataset(root, labels, {"test": pictures}, checked, {})


def load_splits(root: Path, reading: Reading) -> Dataset:
    """The data set in a folder: `train/<class>/*`, `val/<class>/*` and `test/<class>/*`, every file a picture.

    val/ may be called valid/ or validation/. Without it 10 % of each class of train/ validate, chosen as
    `load_classes` does. Classes are the sorted folder names of train/; hidden files, Thumbs.db and desktop.ini are
    ignored.

    Raises:
        DataError: if train/ or test/ is missing, there are two folders of validation, a split is empty, or has a class
            that train/ lacks or has no picture of, there are not two classes, pictures are broken (see
            `check_pictures`), a picture is in two splits, byte by byte, or an option does not apply.
    """
    folders = _folders(root)
    choices = {} if "val" in folders else {"split_seed": reading.split_seed or 0}
    reading.allow(f"{root}, which is split into {', '.join(folders)}", "skip_broken", *choices)
    labels = _labels(folders["train"])
    splits = {split: _pictures(folder, labels) for split, folder in folders.items()}
    everything = [picture for pictures in splits.values() for picture in pictures]
    checked = check_pictures(root, everything, skip_broken=reading.skip_broken)
    refuse_gaps(root, labels, checked.left(splits["train"]))
    if choices:
        seed = choices["split_seed"]
        splits |= _split(folders["train"], labels, checked, splits["train"], shares=_VAL_SHARE, seed=seed)
    _refuse_copies(root, splits, checked)
    return to_dataset(root, labels, splits, checked, choices)


def _folders(root: Path) -> dict[str, Path]:
    """Where the splits lie; without validation if there is no folder of it.

    Raises:
        DataError: if train/ or test/ is missing, or there are two folders of validation.
    """
    missing = [f"no {split}/" for split in _NEEDED if not (root / split).is_dir()]
    if missing:
        raise DataError(
            f"{root} has {' and '.join(missing)}: a data folder to train on has train/ and test/, and may have val/ "
            "(without it 10 % of train/ validate), or it has one folder a class"
        )
    found = [root / name for name in _VALIDATION if (root / name).is_dir()]
    if len(found) > 1:
        raise DataError(f"{root} has {' and '.join(f'{path.name}/' for path in found)}: either may be the validation")
    val = {"val": found[0]} if found else {}
    return {"train": root / "train", **val, "test": root / "test"}


def load_classes(root: Path, reading: Reading) -> Dataset:
    """The data set in a folder of `<class>/*`, split at random into 70 % train, 10 % val and 20 % test of each class.

    Shares are rounded to whole images, at least one; copies of one image count as one and stay together. The split
    depends on the files and reading.split_seed (0 if it is not said) alone. Classes are the sorted folder names; hidden
    files, Thumbs.db and desktop.ini are ignored.

    Raises:
        DataError: if there are not two classes, one has fewer than three images, a file lies beside the class
            folders, pictures are broken (see `check_pictures`), or an option does not apply.
    """
    reading.allow(f"{root}, which has no lists of shots", "split_seed", "skip_broken")
    labels = _labels(root)
    pictures = _pictures(root, labels)
    checked = check_pictures(root, pictures, skip_broken=reading.skip_broken)
    seed = reading.split_seed or 0
    splits = _split(root, labels, checked, pictures, shares=_SHARES, seed=seed)
    return to_dataset(root, labels, splits, checked, {"split_seed": seed})


def _split(
    root: Path,
    labels: tuple[str, ...],
    checked: Checked,
    pictures: list[Picture],
    *,
    shares: Mapping[str, float],
    seed: int,
) -> dict[str, list[Picture]]:
    """What is left of the pictures, by split: those of `shares`, and train, which has the rest."""
    left = checked.left(pictures)
    targets = torch.tensor([picture.target for picture in left])
    order = stratified_order(targets, seed)
    splits: dict[str, list[Picture]] = {split: [] for split in ("train", *shares)}
    for target, label in enumerate(labels):
        copies: dict[str, list[Picture]] = {}
        for i in order[targets[order] == target].tolist():
            copies.setdefault(checked.digests[left[i].path], []).append(left[i])
        members = list(copies.values())
        if len(members) < len(splits):
            raise DataError(
                f"{root / label} has {count(len(members), 'picture')}: one each for {', '.join(splits)} needs "
                f"{len(splits)}"
            )
        rest = iter(members)
        for split, share in shares.items():
            splits[split] += chain.from_iterable(islice(rest, max(1, round(share * len(members)))))
        splits["train"] += chain.from_iterable(rest)
    return splits


def _refuse_copies(root: Path, splits: Mapping[str, Sequence[Picture]], checked: Checked) -> None:
    """Refuses a picture that two splits have, whose test would then not be one."""
    seen: dict[str, tuple[str, Path]] = {}
    for split, pictures in splits.items():
        for picture in checked.left(pictures):
            other, path = seen.setdefault(checked.digests[picture.path], (split, picture.path))
            if other != split:
                both = f"{path.relative_to(root)} and {picture.path.relative_to(root)}"
                raise DataError(f"{root}: {both} are the same picture, in two splits")


def _labels(folder: Path) -> tuple[str, ...]:
    labels = tuple(path.name for path in _visible(folder) if path.is_dir())
    if len(labels) < 2:
        raise DataError(f"{folder} has {count(len(labels), 'class folder')}: a classification needs two")
    for label in labels:
        if any(category(character) in _UNSPEAKABLE for character in label):
            raise DataError(f"{folder}: the class folder {label!r} has a control character in its name; rename it")
    return labels


def _folder_names(root: Path) -> set[str]:
    return {path.name for path in _visible(root) if path.is_dir()}


def _visible(folder: Path) -> list[Path]:
    return sorted(
        path for path in folder.iterdir() if not path.name.startswith(".") and path.name.lower() not in _CLUTTER
    )


def _pictures(folder: Path, labels: tuple[str, ...]) -> list[Picture]:
    index = {label: i for i, label in enumerate(labels)}
    pictures = []
    for label in _visible(folder):
        if label.name not in index or not label.is_dir():
            raise DataError(f"{label} is not a class folder: the classes are {first(labels)}")
        for path in _visible(label):
            if path.is_dir():
                raise DataError(f"{path} is a folder: the pictures of a class lie in its own folder")
            pictures.append(Picture(path, index[label.name]))
    if not pictures:
        raise DataError(f"{folder} holds no images: expected {folder.name}/<class>/<image>")
    return pictures
