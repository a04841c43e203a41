"""Means over the rows of a sweep, only of what can be compared: all tasks, the same seeds, the same conditions."""

from __future__ import annotations

import re
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fpet.data import SOURCES
from fpet.data.vtab import VTAB_1K
from fpet.errors import TaskError
from fpet.results import Row, read_rows

# A run without token reduction is the measure of another if they agree in all of these.
_SHARED = ("data", "seed", "adapter", "adapter_arguments", "head_bits", "epochs", "batch_size", "lr", "precision")
_CONDITIONS = ("backbone", "device", "threads", "memory", "fpet", "torch")
_READING = re.compile(r"( \w+=\w+)+$")  # what a plan's label says behind the source
Value = Callable[[Row], float | None]


@dataclass(frozen=True)
class Spread:
    """A mean over seeds, and the standard deviation over them; None with one seed."""

    mean: float
    deviation: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """That of one value a seed."""
        return cls(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None)

    def text(self, factor: float = 1.0, sign: str = "") -> str:
        """With two decimals, times `factor`; sign: "+" to show it always."""
        mean = f"{factor * self.mean:{sign}.2f}"
        return mean if self.deviation is None else f"{mean} ± {factor * self.deviation:.2f}"


def read_tables(paths: Iterable[Path]) -> list[Row]:
    """The rows of what `fpet sweep` wrote.

    Raises:
        SystemExit: naming a file that is missing, holds no run or is no such table.
    """
    try:
        tables = {path: read_rows(path) for path in paths}
    except TaskError as error:
        raise SystemExit(str(error)) from error
    for path, rows in tables.items():
        if not rows:
            raise SystemExit(f"{path}: there is no run in it" if path.exists() else f"{path}: there is no such file")
    return [row for rows in tables.values() for row in rows]


class Results:
    """The finished rows of a sweep. methods, data, seeds: in the order in which they appear."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self.rows = [row for row in rows if not row.error]
        self.methods = list(dict.fromkeys(row.method for row in self.rows))
        self.data = list(dict.fromkeys(row.data for row in self.rows))
        self.seeds = sorted({row.seed for row in self.rows})
        cells = [row.cell for row in self.rows]
        for cell in cells:
            if cells.count(cell) > 1:
                raise ValueError(f"two runs of {cell}: tables are of one plan")
        self._unreduced = {_place(row): row for row in self.rows if row.reducer == "none"}

    def of(self, method: str) -> list[Row]:
        """The rows of a method."""
        return [row for row in self.rows if row.method == method]

    def without(self, row: Row) -> Row | None:
        """The run that differs in having no token reduction; None for itself, and if there is none."""
        return None if row.reducer == "none" else self._unreduced.get(_place(row))

    def on(self, method: str, data: str, value: Value) -> Spread | None:
        """A value on one task; None if it has no row."""
        values = [number for row in self.of(method) if row.data == data and (number := value(row)) is not None]
        return Spread.of(values) if values else None

    def over_tasks(self, method: str, value: Value) -> Spread | None:
        """The mean of the means of VTAB's three groups of tasks, as the paper's "Average", seed by seed; tasks of no
        group are one more. None if a task is missing, since others have it in their mean."""
        seeds: list[float] = []
        for seed in self.seeds:
            values = {row.data: value(row) for row in self.of(method) if row.seed == seed}
            groups: dict[str, list[float]] = defaultdict(list)
            for data, number in values.items():
                if number is not None:
                    groups[_group(data)].append(number)
            if sum(map(len, groups.values())) == len(self.data):
                seeds.append(statistics.fmean(map(statistics.fmean, groups.values())))
        return Spread.of(seeds) if seeds else None

    def ratio(self, method: str, value: Value) -> float | None:
        """The median over runs of a value, relative to the run without token reduction."""
        ratios: list[float] = []
        for row in self.of(method):
            measure = self.without(row)
            pair = value(row), value(measure) if measure else None
            if pair[0] is not None and pair[1]:
                ratios.append(pair[0] / pair[1])
        return statistics.median(ratios) if ratios else None


def _group(data: str) -> str:
    """The group of a planned data set, a source or a folder of VTAB-1K; empty for any other."""
    known = SOURCES.get(data) or VTAB_1K.get(Path(_READING.sub("", data)).name)
    return known.group if known else ""


def _place(row: Row) -> tuple[object, ...]:
    return tuple(getattr(row, name) for name in (*_SHARED, *_CONDITIONS))


def conditions(rows: Sequence[Row]) -> list[str]:
    """Under which conditions the rows came about, as lines of Markdown; several where they differ."""
    shown = (
        "backbone",
        "epochs",
        "batch_size",
        "lr",
        "precision",
        "train_images",
        "device",
        "threads",
        "torch",
        "fpet",
    )
    finished = [row for row in rows if not row.error]
    lines = []
    for name in shown:
        values = dict.fromkeys(str(getattr(row, name)) for row in finished)
        lines.append(f"- {name.replace('_', ' ')}: {', '.join(values)}")
    failed = [f"- failed: {row.data}, {row.method}, seed {row.seed}: {row.error}" for row in rows if row.error]
    return lines + failed
