"""A named source of labelled images."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fpet.data.split import Dataset


@dataclass(frozen=True)
class Source:
    """Where a data set comes from.

    group: "natural", "specialised" or "structured", as VTAB sorts its tasks. summary: what is to be told apart, in a
    few words. load: (folder with the source's files or None, cache folder) -> the data set; raises DataError if it
    cannot be had.
    """

    group: str
    summary: str
    load: Callable[[Path | None, Path], Dataset]
