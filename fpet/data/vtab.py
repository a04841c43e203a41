"""VTAB-1K (Zhai et al., 2019) in the layout in which it is passed on, that of NOAH (Zhang et al., 2022)."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

from fpet.data.lists import Lists, load_lists
from fpet.data.reading import Reading
from fpet.data.split import Dataset

_TRAIN, _VAL, _TEST = "train800.txt", "val200.txt", "test.txt"
_MARKS = (_TRAIN, _VAL, "train800val200.txt")  # test.txt may be anything's


@dataclass(frozen=True)
class VtabTask:
    """One of the 19; group: as of `Source`; classes: how many; untrained: whether some have no image in train800."""

    group: str
    classes: int
    untrained: bool = False


VTAB_1K: dict[str, VtabTask] = {
    "cifar": VtabTask("natural", 100),
    "caltech101": VtabTask("natural", 102),
    "dtd": VtabTask("natural", 47),
    "oxford_flowers102": VtabTask("natural", 102),
    "oxford_iiit_pet": VtabTask("natural", 37),
    "svhn": VtabTask("natural", 10),
    # Its first 800 images show 309 of the classes (google-research/task_adaptation, issue 21).
    "sun397": VtabTask("natural", 397, untrained=True),
    "patch_camelyon": VtabTask("specialised", 2),
    "eurosat": VtabTask("specialised", 10),
    "resisc45": VtabTask("specialised", 45),
    "diabetic_retinopathy": VtabTask("specialised", 5),
    "clevr_count": VtabTask("structured", 8),
    "clevr_dist": VtabTask("structured", 6),
    "dmlab": VtabTask("structured", 6),
    "kitti": VtabTask("structured", 4),
    "dsprites_loc": VtabTask("structured", 16),
    "dsprites_ori": VtabTask("structured", 16),
    "smallnorb_azi": VtabTask("structured", 18),
    "smallnorb_ele": VtabTask("structured", 9),  # 18 in some papers' tables is a slip
}


def is_vtab(root: Path) -> bool:
    """Whether a folder has VTAB-1K's lists."""
    return any((root / mark).is_file() for mark in _MARKS)


def load_vtab(root: Path, reading: Reading) -> Dataset:
    """The data set in a folder of VTAB-1K: `train800.txt`, `val200.txt`, `test.txt` and the images that they name.

    A folder of another name than the 19 is read too; its classes are then those of its training list. The 800 images
    train and the 200 choose the epoch. Papers often fit all 1,000 (`train800val200.txt`) and choose the epoch on the
    test images; here nothing is chosen on test images, and images that were fitted cannot choose an epoch either, so
    that list is not read, and accuracies are a little below what the same method reaches with a quarter more images.

    Raises:
        DataError: as `load_lists` does, or if an option does not apply.
    """
    reading.allow(f"{root}, whose lists say its splits", "skip_broken")
    task = VTAB_1K.get(root.resolve().name)
    lists = Lists(root, root / _TRAIN, root / _VAL, root / _TEST)
    if task is not None:
        lists = dataclasses.replace(lists, classes=task.classes, untrained=task.untrained)
    return load_lists(lists, {}, skip_broken=reading.skip_broken)
