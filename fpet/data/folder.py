"""A user's own pictures in one folder a class: split into train/, val/ and test/, or to be split."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path

import torch

from fpet.data.listing import class_names, composed, visible
from fpet.data.pictures import Checked, LabelledFile, check_pictures, copies, refuse_gaps, to_dataset
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
_VALIDATION_LIKE = {*_VALIDATION, "validate", "dev", "eval"}
_SPLIT_LIKE = {*_NAMES, *_VALIDATION_LIKE, "training", "testing"}


def has_splits(root: Path) -> bool:
    """Whether a folder is meant to hold train/, val/ and test/ rather than classes, of which one may be named so."""
    names = _folder_names(root)
    return len(names & _NAMES) > 1 or names <= _NAMES


def has_test_alone(root: Path) -> bool:
    """Whether a folder has test/ and no other folder."""
    return _folder_names(root) == {"test"}


def load_test(root: Path, reading: Reading) -> Dataset:
    """The data set in a folder with nothing but `test/<class>/**`: there are no images to train on or to validate with.

    Classes are the sorted folder names of test/, of which some may be empty; they are read as `load_classes` does.

    Raises:
        DataError: if there are not two classes, there is no picture, pictures are broken (see `check_pictures`), one is
            under two classes, byte by byte, or an option does not apply.
    """
    reading.allow(f"{root}, which has test/ alone", "skip_broken")
    labels = class_names(root / "test")
    pictures = _pictures(root / "test", labels)
    checked = check_pictures(root, pictures, skip_broken=reading.skip_broken)
    _refuse_two_classes(root, labels, pictures, checked)
    return to_dataset(root, labels, {"test": pictures}, checked, {})


def load_splits(root: Path, reading: Reading) -> Dataset:
    """The data set in a folder: `train/<class>/**`, `val/<class>/**` and `test/<class>/**`, every file a picture.

    val/ may be called valid/ or validation/. Without it 10 % of each class of train/ validate, chosen as
    `load_classes` does, which also says how the folders of the classes are read. Classes are the sorted folder names of
    train/.

    Raises:
        DataError: if train/ or test/ is missing, there are two folders of validation, or one of another name, a split
            is empty, or has a class that train/ lacks or has no picture of, there are not two classes, pictures are
            broken (see `check_pictures`), a picture is under two classes or in two splits, byte by byte, or an option
            does not apply.
    """
    folders = _folders(root)
    choices = {} if "val" in folders else {"split_seed": reading.split_seed or 0}
    reading.allow(f"{root}, which is split into {', '.join(folders)}", "skip_broken", *choices)
    labels = class_names(folders["train"])
    splits = {split: _pictures(folder, labels) for split, folder in folders.items()}
    everything = [picture for pictures in splits.values() for picture in pictures]
    checked = check_pictures(root, everything, skip_broken=reading.skip_broken)
    _refuse_two_classes(root, labels, everything, checked)
    refuse_gaps(root, labels, checked.left(splits["train"]))
    if choices:
        seed = choices["split_seed"]
        splits |= _split(folders["train"], labels, checked, splits["train"], shares=_VAL_SHARE, seed=seed)
    _refuse_copies(root, splits, checked)
    return to_dataset(root, labels, splits, checked, choices, fixed_test=True)


def _folders(root: Path) -> dict[str, Path]:
    """Where the splits lie; without validation if there is no folder of it.

    Raises:
        DataError: if train/ or test/ is missing, or there are two folders of validation, or one of another name.
    """
    missing = [f"no {split}/" for split in _NEEDED if not (root / split).is_dir()]
    if missing:
        if (root / "train").is_dir() and any((root / name).is_dir() for name in _VALIDATION):
            raise DataError(f"{root} has no test/: rename the validation to test/, and 10 % of train/ validate")
        raise DataError(
            f"{root} has {' and '.join(missing)}: a data folder to train on has train/ and test/, and may have val/ "
            "(without it 10 % of train/ validate), or it has one folder a class"
        )
    if unread := sorted(name for name in _folder_names(root) - _NAMES if name.lower() in _VALIDATION_LIKE):
        raise DataError(f"{root / unread[0]}/ seems to be the validation, which is called {', '.join(_VALIDATION)}")
    found = [root / name for name in _VALIDATION if (root / name).is_dir()]
    if len(found) > 1:
        raise DataError(f"{root} has {' and '.join(f'{path.name}/' for path in found)}: either may be the validation")
    val = {"val": found[0]} if found else {}
    return {"train": root / "train", **val, "test": root / "test"}


def load_classes(root: Path, reading: Reading) -> Dataset:
    """The data set in a folder of `<class>/**`, split at random into 70 % train, 10 % val and 20 % test of each class.

    Shares are rounded to whole images, at least one; copies of one image count as one and stay together. The split
    depends on the files and reading.split_seed (0 if it is not said) alone. Classes are the sorted folder names. Every
    file below a class folder, however deep, is a picture of the class, in the order of their paths; hidden files and
    folders, and what systems leave about, are ignored. Symbolic links are followed, but of each class a folder is read
    only once, and a link to a folder that the class lies in is ignored: a loop ends.

    Raises:
        DataError: if there are not two classes, they are called as splits are, one has fewer than three images, a file
            lies beside the class folders, pictures are broken (see `check_pictures`), one is under two classes, byte by
            byte, or an option does not apply.
    """
    reading.allow(f"{root}, which has no lists of shots", "split_seed", "skip_broken")
    labels = class_names(root)
    _refuse_split_names(root, labels)
    pictures = _pictures(root, labels)
    checked = check_pictures(root, pictures, skip_broken=reading.skip_broken)
    _refuse_two_classes(root, labels, pictures, checked)
    seed = reading.split_seed or 0
    splits = _split(root, labels, checked, pictures, shares=_SHARES, seed=seed)
    return to_dataset(root, labels, splits, checked, {"split_seed": seed})


def _split(
    root: Path,
    labels: tuple[str, ...],
    checked: Checked,
    pictures: list[LabelledFile],
    *,
    shares: Mapping[str, float],
    seed: int,
) -> dict[str, list[LabelledFile]]:
    """What is left of the pictures, by split: those of `shares`, and train, which has the rest."""
    left = checked.left(pictures)
    targets = torch.tensor([picture.target for picture in left])
    order = stratified_order(targets, seed)
    splits: dict[str, list[LabelledFile]] = {split: [] for split in ("train", *shares)}
    for target, label in enumerate(labels):
        copies: dict[str, list[LabelledFile]] = {}
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


def _refuse_copies(root: Path, splits: Mapping[str, Sequence[LabelledFile]], checked: Checked) -> None:
    """Refuses a picture that two splits have, whose test would then not be one."""
    if pairs := copies(root, splits, checked):
        many = count(len(pairs), "picture")
        raise DataError(f"{root}: {many} in two splits, byte by byte; delete one of each two: {first(pairs, '; ')}")


def _refuse_two_classes(root: Path, labels: Sequence[str], pictures: Iterable[LabelledFile], checked: Checked) -> None:
    """Refuses a picture under two classes, of which one is wrong; it might also be trained on and tested."""
    seen: dict[str, LabelledFile] = {}
    pairs = []
    for picture in checked.left(pictures):
        other = seen.setdefault(checked.digests[picture.path], picture)
        if other.target != picture.target:
            named = (f"{one.path.relative_to(root)} as {labels[one.target]!r}" for one in (other, picture))
            pairs.append(" and ".join(named))
    if pairs:
        raise DataError(f"{root}: the same picture is under two classes; delete one of each two: {first(pairs, '; ')}")


def _refuse_split_names(root: Path, labels: Sequence[str]) -> None:
    """Refuses Training/ and Testing/, whose own folders are the classes; they would be read as two classes."""
    named = [label for label in labels if label.lower() in _SPLIT_LIKE]
    if len(named) > 1:
        raise DataError(
            f"{root}: {' and '.join(f'{label}/' for label in named)} are called as splits are, not classes; rename "
            "them train/, val/ and test/"
        )


def _folder_names(root: Path) -> set[str]:
    return {path.name for path in visible(root) if path.is_dir()}


def _pictures(folder: Path, labels: tuple[str, ...]) -> list[LabelledFile]:
    index = {label: i for i, label in enumerate(labels)}
    found = visible(folder)
    if strays := [str(path) for path in found if composed(path.name) not in index or not path.is_dir()]:
        what = "is not a class folder" if len(strays) == 1 else "are not class folders"
        raise DataError(f"{first(strays)} {what}: the classes are {first(labels)}; move what is none elsewhere")
    pictures = [LabelledFile(path, index[composed(label.name)]) for label in found for path in _files(label)]
    if not pictures:
        raise DataError(f"{folder} holds no images: expected {folder.name}/<class>/<image>")
    return pictures


def _files(label: Path) -> Iterator[Path]:
    """All files below a class folder by path, as `load_classes` says."""
    # Folders by where links lead. Those that the class lies in, seen from either end of a link, are no part of it.
    read = {folder for start in (label, label.parent) for folder in (start.resolve(), *start.resolve().parents)}
    left = visible(label)[::-1]
    while left:
        path = left.pop()
        if not path.is_dir():
            yield path
        elif (folder := path.resolve()) not in read:
            read.add(folder)
            left += visible(path)[::-1]
