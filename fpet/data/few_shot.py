"""Few-shot splits as NOAH publishes them (Zhang et al., 2022): fine-grained classes, 1 to 16 images each."""

from __future__ import annotations

import re
from pathlib import Path

from fpet.data.lists import Lists, load_lists
from fpet.data.reading import Reading
from fpet.data.split import Dataset
from fpet.errors import DataError

# Folders and their numbers of classes; "standford" is how it is published.
FEW_SHOT: dict[str, int] = {
    "fgvc-aircraft": 100,
    "food101": 101,
    "oxford-flowers102": 102,
    "oxford-pets": 37,
    "standford-cars": 196,
}

_TRAIN = re.compile(r"train_meta\.list\.num_shot_(\d+)\.seed_(\d+)")
_VAL, _TEST = "val_meta.list", "test_meta.list"


def is_few_shot(root: Path) -> bool:
    """Whether a folder has few-shot lists."""
    return bool(_draws(_folder(root)))


def load_few_shot(root: Path, reading: Reading) -> Dataset:
    """The data set of `train_meta.list.num_shot_<shots>.seed_<shots_seed>`, `val_meta.list` and `test_meta.list`.

    The lists lie in the folder or in its `annotations/`, and mean images in the folder or in its `images/`. A folder of
    another name than FEW_SHOT's is read too; its classes are then those of its training list. shots_seed is 0 if it is
    not said.

    Raises:
        DataError: if shots is not said or no such list is there, an option does not apply, or as `load_lists` does.
    """
    reading.allow(f"{root}, whose lists say its splits", "shots", "shots_seed", "skip_broken")
    folder = _folder(root)
    draws = _draws(folder)
    shots, seed = reading.shots, reading.shots_seed or 0
    if shots is None or (shots, seed) not in draws:
        known = [", ".join(map(str, sorted({draw[i] for draw in draws}))) for i in (0, 1)]
        asked = "say shots" if shots is None else f"not of {shots} shots and seed {seed}"
        raise DataError(f"{folder} has lists with shots = {known[0]} and shots_seed = {known[1]}: {asked}")
    classes = FEW_SHOT.get(root.resolve().name)
    lists = Lists(root, draws[shots, seed], folder / _VAL, folder / _TEST, images=("images", "."), classes=classes)
    return load_lists(lists, {"shots": shots, "shots_seed": seed}, skip_broken=reading.skip_broken)


def _folder(root: Path) -> Path:
    """Where the lists lie."""
    annotations = root / "annotations"
    return annotations if annotations.is_dir() and not _draws(root) else root


def _draws(folder: Path) -> dict[tuple[int, int], Path]:
    """The training lists by shots and seed."""
    matches = ((_TRAIN.fullmatch(path.name), path) for path in sorted(folder.iterdir()))
    return {(int(match[1]), int(match[2])): path for match, path in matches if match}
