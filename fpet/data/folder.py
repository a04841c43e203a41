"""A user's own pictures in one folder a class: split into train/, val/ and test/, or to be split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path

import torch

from fpet.data.pictures import SPLITS, Checked, Picture, check_pictures, refuse_gaps, to_dataset
from fpet.data.reading import Reading
from fpet.data.sample import stratified_order
from fpet.data.split import Dataset
from fpet.errors import DataError

VAL_SHARE, TEST_SHARE = 0.1, 0.2  # of a folder that is to be split; the rest trains


def has_splits(root: Path) -> bool:
    """Whether a folder is meant to hold train/, val/ and test/ rather than classes, of which one may be named so."""
    names = {path.name for path in _visible(root) if path.is_dir()}
    return len(names & set(SPLITS)) > 1 or names <= set(SPLITS)


def load_splits(root: Path, reading: Reading) -> Dataset:
    """The data set in a folder: `train/<class>/*`, `val/<class>/*` and `test/<class>/*`, every file a picture.

    Classes are the sorted folder names of train/; hidden files are ignored.

    Raises:
        DataError: if a split is missing or empty, or has a class that train/ lacks or has no picture of, there are not
            two classes, pictures are broken (see `check_pictures`), a picture is in two splits, byte by byte, or an
            option does not apply.
    """
    reading.allow(f"{root}, which is split into {', '.join(SPLITS)}", "skip_broken")
    labels = _labels(root / "train")
    splits = {split: _pictures(root / split, labels) for split in SPLITS}
    everything = [picture for pictures in splits.values() for picture in pictures]
    checked = check_pictures(root, everything, skip_broken=reading.skip_broken)
    refuse_gaps(root, labels, checked.left(splits["train"]))
    _refuse_copies(root, splits, checked)
    return to_dataset(root, labels, splits, checked, {})


def load_classes(root: Path, reading: Reading) -> Dataset:
    """The data set in a folder of `<class>/*`, split at random into 70 % train, 10 % val and 20 % test of each class.

    Shares are rounded to whole images, at least one; copies of one image count as one and stay together. The split
    depends on the files and reading.split_seed (0 if it is not said) alone. Classes are the sorted folder names; hidden
    files are ignored.

    Raises:
        DataError: if there are not two classes, one has fewer than three images, a file lies beside the class
            folders, pictures are broken (see `check_pictures`), or an option does not apply.
    """
    reading.allow(f"{root}, which has no lists of shots", "split_seed", "skip_broken")
    labels = _labels(root)
    pictures = _pictures(root, labels)
    checked = check_pictures(root, pictures, skip_broken=reading.skip_broken)
    seed = reading.split_seed or 0
    return to_dataset(root, labels, _split(root, labels, pictures, checked, seed), checked, {"split_seed": seed})


def _split(
    root: Path, labels: tuple[str, ...], pictures: list[Picture], checked: Checked, seed: int
) -> dict[str, list[Picture]]:
    """What is left of the pictures, by split."""
    left = checked.left(pictures)
    targets = torch.tensor([picture.target for picture in left])
    order = stratified_order(targets, seed)
    splits: dict[str, list[Picture]] = {split: [] for split in SPLITS}
    for target, label in enumerate(labels):
        copies: dict[str, list[Picture]] = {}
        for i in order[targets[order] == target].tolist():
            copies.setdefault(checked.digests[left[i].path], []).append(left[i])
        members = list(copies.values())
        if len(members) < len(SPLITS):
            raise DataError(
                f"{root / label} has {len(members)} pictures: one each for {', '.join(SPLITS)} needs {len(SPLITS)}"
            )
        val, test = (max(1, round(share * len(members))) for share in (VAL_SHARE, TEST_SHARE))
        splits["val"] += chain.from_iterable(members[:val])
        splits["test"] += chain.from_iterable(members[val : val + test])
        splits["train"] += chain.from_iterable(members[val + test :])
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
        raise DataError(f"{folder} has {len(labels)} class folders: a classification needs two")
    return labels


def _visible(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise DataError(
            f"there is no folder {folder}: a data folder has {', '.join(f'{split}/' for split in SPLITS)}, or one "
            "folder a class"
        )
    return sorted(path for path in folder.iterdir() if not path.name.startswith("."))


def _pictures(folder: Path, labels: tuple[str, ...]) -> list[Picture]:
    index = {label: i for i, label in enumerate(labels)}
    pictures = []
    for label in _visible(folder):
        if label.name not in index or not label.is_dir():
            raise DataError(f"{label} is not a class folder: the classes are {', '.join(labels)}")
        for path in _visible(label):
            if path.is_dir():
                raise DataError(f"{path} is a folder: the pictures of a class lie in its own folder")
            pictures.append(Picture(path, index[label.name]))
    if not pictures:
        raise DataError(f"{folder} holds no images: expected {folder.name}/<class>/<image>")
    return pictures
