"""Labelled images to train and evaluate on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fpet.data.digits import load_digits
from fpet.data.fashion_mnist import load_fashion_mnist
from fpet.data.few_shot import is_few_shot, load_few_shot
from fpet.data.folder import has_splits, has_test_alone, load_classes, load_splits, load_test
from fpet.data.own import dataset_of
from fpet.data.packaged import PACKAGED
from fpet.data.reading import Reading
from fpet.data.scenes import SCENES
from fpet.data.source import Source
from fpet.data.split import Dataset, Images, ImageTensor, ResizedSplit, Split
from fpet.data.vtab import is_vtab, load_vtab
from fpet.errors import DataError

__all__ = [
    "SOURCES",
    "Dataset",
    "ImageTensor",
    "Images",
    "Reading",
    "ResizedSplit",
    "Source",
    "Split",
    "dataset_of",
    "default_cache",
    "load_dataset",
    "load_source",
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
    data: str | os.PathLike[str],
    folder: str | os.PathLike[str] | None = None,
    cache: str | os.PathLike[str] | None = None,
    reading: Reading | None = None,
    *,
    test_alone: bool = False,
) -> Dataset:
    """The data set of a named source (see `load_source`), or in a folder: `./digits` for one that is named as a source.

    A path that is no text is always a folder's.

    A folder holds few-shot lists (see `load_few_shot`), VTAB-1K's lists (`load_vtab`), train/, val/ and test/
    (`load_splits`), or one folder a class (`load_classes`).

    folder: where a named source's files lie, if not where it finds or fetches them. cache: see `default_cache`.
    reading: how a folder is read. test_alone: whether a folder that has only test/ will do (`load_test`); it cannot be
    trained on.

    Raises:
        DataError: if there is no such source or folder, or both, its data cannot be had, or `reading` does not fit it.
    """
    reading = reading or Reading()
    if isinstance(data, str) and data in SOURCES:
        if folder is None and Path(data).is_dir():
            raise DataError(
                f"{data} is the name of a data set, and there is a folder of that name here: say ./{data} for the "
                "folder; for the data set of that name go to another folder"
            )
        return load_source(data, folder, cache, reading)
    if folder is not None:
        raise DataError(f"a folder beside the data '{data}': only a named source ({', '.join(SOURCES)}) has its own")
    if not os.fspath(data):  # as of a variable that is not set: to take it for this folder would train on what is here
        raise DataError("the name of the data is empty; say . for this folder")
    root = Path(data)
    with _told(str(data)):
        if root.is_dir():
            readers = [(fits, load) for fits, load in _READERS if test_alone or load is not load_test]
            load = next((load for fits, load in readers if fits(root)), load_classes)
            return load(root, reading)
    raise DataError(f"no data '{data}': neither a source ({', '.join(SOURCES)}) nor a folder")


def load_source(
    name: str,
    folder: str | os.PathLike[str] | None = None,
    cache: str | os.PathLike[str] | None = None,
    reading: Reading | None = None,
) -> Dataset:
    """The data set of one of SOURCES, whatever folders there are; folder, cache, reading: as of `load_dataset`.

    Raises:
        DataError: if its data cannot be had, or anything is said of how to read a folder.
    """
    (reading or Reading()).allow(f"{name}, which is no folder")
    with _told(name):
        own = None if folder is None else Path(folder)
        return SOURCES[name].load(own, default_cache() if cache is None else Path(cache))


@contextmanager
def _told(data: str) -> Iterator[None]:
    """Raises DataError where the system refuses: as of a folder that may not be entered, or a name that is too long."""
    try:
        yield
    except OSError as error:
        raise DataError(f"{error.filename or data}: cannot be used: {error.strerror or error}") from error
