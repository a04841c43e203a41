"""Labelled images to train and evaluate on."""

from __future__ import annotations

from pathlib import Path

from fpet.data.digits import load_digits
from fpet.data.fashion_mnist import load_fashion_mnist
from fpet.data.few_shot import is_few_shot, load_few_shot
from fpet.data.folder import has_splits, has_test_alone, load_classes, load_splits, load_test
from fpet.data.packaged import PACKAGED
from fpet.data.reading import Reading
from fpet.data.scenes import SCENES
from fpet.data.source import Source
from fpet.data.split import Dataset, Images, ResizedSplit, Split
from fpet.data.vtab import is_vtab, load_vtab
from fpet.errors import DataError

__all__ = [
    "SOURCES",
    "Dataset",
    "Images",
    "Reading",
    "ResizedSplit",
    "Source",
    "Split",
    "default_cache",
    "load_dataset",
]

SOURCES: dict[str, Source] = {
    "fashion-mnist": Source("natural", "10 kinds of clothing, shoes and bags", load_fashion_mnist),
    "digits": Source("specialised", "handwritten digits", load_digits),
    **PACKAGED,
    **SCENES,
}

# The first that fits a folder reads it; `load_classes` takes what is left.
_READERS = (
    (is_few_shot, load_few_shot),
    (is_vtab, load_vtab),
    (has_test_alone, load_test),
    (has_splits, load_splits),
)


def default_cache() -> Path:
    """The folder that fetched data is kept in."""
    return Path.home() / ".cache" / "fpet"


def load_dataset(
    data: str,
    folder: Path | None = None,
    cache: Path | None = None,
    reading: Reading | None = None,
    *,
    test_alone: bool = False,
) -> Dataset:
    """The data set of a named source, or in a folder (`./digits` for one named so).

    A folder holds few-shot lists (see `load_few_shot`), VTAB-1K's lists (`load_vtab`), train/, val/ and test/
    (`load_splits`), or one folder a class (`load_classes`).

    folder: where a named source's files lie, if not where it finds or fetches them. cache: see `default_cache`.
    reading: how a folder is read. test_alone: whether a folder that has only test/ will do (`load_test`); it cannot be
    trained on.

    Raises:
        DataError: if there is no such source or folder, its data cannot be had, or `reading` does not fit it.
    """
    reading = reading or Reading()
    if data in SOURCES:
        reading.allow(f"{data}, which is no folder")
        return SOURCES[data].load(folder, cache or default_cache())
    if folder is not None:
        raise DataError(f"a folder beside the data '{data}': only a named source ({', '.join(SOURCES)}) has its own")
    root = Path(data)
    if root.is_dir():
        readers = [(fits, load) for fits, load in _READERS if test_alone or load is not load_test]
        load = next((load for fits, load in readers if fits(root)), load_classes)
        return load(root, reading)
    raise DataError(f"no data '{data}': neither a source ({', '.join(SOURCES)}) nor a folder")
