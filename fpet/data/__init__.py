"""Labelled images to train and evaluate on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fpet.data.digits import load_digits
from fpet.data.fashion_mnist import load_fashion_mnist
from fpet.data.folder import load_folder
from fpet.data.split import Dataset, Images, ResizedSplit, Split
from fpet.errors import DataError

__all__ = ["SOURCES", "Dataset", "Images", "ResizedSplit", "Split", "default_cache", "load_dataset"]

# name -> loader(folder with the source's files or None, cache folder)
SOURCES: dict[str, Callable[[Path | None, Path], Dataset]] = {
    "digits": load_digits,
    "fashion-mnist": load_fashion_mnist,
}


def default_cache() -> Path:
    """The folder that fetched data is kept in."""
    return Path.home() / ".cache" / "fpet"


def load_dataset(data: str, folder: Path | None = None, cache: Path | None = None) -> Dataset:
    """The data set of a named source, or of a folder with train/, val/ and test/ (`./digits` for one named so).

    folder: where a named source's files lie, if not where it finds or fetches them. cache: see `default_cache`.

    Raises:
        DataError: if there is no such source or folder, or its data cannot be had.
    """
    if data in SOURCES:
        return SOURCES[data](folder, cache or default_cache())
    if folder is not None:
        raise DataError(f"a folder beside the data '{data}': only a named source ({', '.join(SOURCES)}) has its own")
    if Path(data).is_dir():
        return load_folder(Path(data))
    raise DataError(f"no data '{data}': neither a source ({', '.join(SOURCES)}) nor a folder")
