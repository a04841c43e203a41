"""Means over the rows of a sweep, only of what can be compared: all tasks, the same seeds, the same conditions."""

from __future__ import annotations

import json
import re
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fpet.adapters import ADAPTERS
from fpet.data import SOURCES
from fpet.data.vtab import VTAB_1K
from fpet.errors import TaskError
from fpet.header import Method
from fpet.registry import completed
from fpet.sweeps.results import Row, read_rows
from fpet.training.recipe import OFF

_RECIPE = (
    "epochs",
    "batch_size",
    "lr",
    "precision",
    "warmup_epochs",
    "warmup_lr",
    "min_lr",
    "weight_decay",
    "drop_path",
    "hflip",
    "crop_scale",
    "class_weights",
    "validate_every",
    "search_scale",
)
# A run without token reduction is the measure of another if they agree in all of these, and in the adapter.
_SHARED = ("data", "seed", "head_bits", *_RECIPE)
_CONDITIONS = ("backbone", "device", "threads", "memory", "fpet", "torch")
_READING = re.compile(r"( \w+=\w+)+$")  # what a plan's label says behind the source
Value = Callable[[Row], float | None]


@dataclass(frozen=True)
class Spread:
    """A mean over seeds, and the standard deviation over them; None with one seed.

    seeds: how many it is over; planned: how many the others are over.
    """

    mean: float
    deviation: float | None
    seeds: int
    planned: int

    @classmethod
    def of(cls, values: Sequence[float], planned: int) -> Spread:
        """That of one value a seed."""
        deviation = statistics.stdev(values) if len(values) > 1 else None
        return cls(statistics.fmean(values), deviation, len(values), planned)

    def text(self, factor: float = 1.0, sign: str = "") -> str:
        """With two decimals, times `factor`; of how many seeds if some are missing. sign: "+" to show it always."""
        mean = f"{factor * self.mean:{sign}.2f}"
        spread = "" if self.deviation is None else f" ± {factor * self.deviation:.2f}"
        missing = f" ({self.seeds} of {self.planned} seeds)" if self.seeds < self.planned else ""
        return mean + spread + missing


def read_tables(paths: Iterable[Path]) -> list[Row]:
    """The rows of what `fpet sweep` wrote.

    Raises:
        SystemExit: naming a file that is missing, holds no run or is no such table, or two finished runs of the same
            data, method and seed.
    """
    try:
        tables = {path: read_rows(path) for path in paths}
    except TaskError as error:
        raise SystemExit(str(error)) from error
    for path, rows in tables.items():
        if not rows:
            raise SystemExit(f"{path}: there is no run in it" if path.exists() else f"{path}: there is no such file")
    rows = [row for rows in tables.values() for row in rows]
    _refuse_twice(row for row in rows if not row.error)
    return rows


def _refuse_twice(rows: Iterable[Row]) -> None:
    """Refuses two runs of a cell, as a plan leaves them whose recipe was changed: a mean would be of both."""
    seen: dict[tuple[str, str, int], Row] = {}
    for row in rows:
        if (other := seen.setdefault(row.cell, row)) is not row:
            raise SystemExit(
                f"two runs, {other.run} and {row.run}, are of {row.data}, {row.method}, seed {row.seed}: tables are of "
                "one plan; delete the row of one of them"
            )


class Results:
    """The finished rows of a sweep, one a cell. methods, data, seeds: in the order in which they appear."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self.rows = [row for row in rows if not row.error]
        self.methods = list(dict.fromkeys(row.method for row in self.rows))
        self.data = list(dict.fromkeys(row.data for row in self.rows))
        self.seeds = sorted({row.seed for row in self.rows})
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
        return Spread.of(values, len(self.seeds)) if values else None

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
        return Spread.of(seeds, len(self.seeds)) if seeds else None

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
    # Tables without the scales to choose from have the one that was chosen.
    return row.scale is not None, adapter_of(row), *(getattr(row, name) for name in (*_SHARED, *_CONDITIONS))


def adapter_of(row: Row) -> str:
    """Kind and arguments of a row's adapter, the same however a plan wrote them: in any order, defaults or none."""
    method = completed(ADAPTERS, Method(row.adapter, json.loads(row.adapter_arguments)))
    return f"{method.kind} {json.dumps(method.arguments)}"


def conditions(rows: Sequence[Row]) -> list[str]:
    """Under which conditions the rows came about, as lines of Markdown; several where they differ."""
    shown = ("backbone", *_RECIPE, "train_images", "device", "threads", "torch", "fpet")
    finished = [row for row in rows if not row.error]
    lines = []
    for name in shown:
        values = dict.fromkeys(value for row in finished if (value := getattr(row, name)) not in (None, ""))
        if not values or set(values) == {OFF.get(name)}:  # not recorded, or of no effect
            continue
        lines.append(f"- {name.replace('_', ' ')}: {', '.join(map(str, values))}")
    failed = [f"- failed: {row.data}, {row.method}, seed {row.seed}: {row.error}" for row in rows if row.error]
    return lines + failed
