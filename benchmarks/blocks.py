"""Accuracy against the block at which tokens merge (the paper's figure 3), as Markdown and as a curve.

fpet sweep benchmarks/plans/blocks.toml --output blocks.csv
python -m benchmarks.blocks blocks.csv --plot blocks.png
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.markdown import table
from benchmarks.summary import Results, Spread, adapter_of, conditions, read_tables
from fpet.sweeps.results import Row

_HEAD = """## Accuracy against the merging block

Per cent of the test images, mean over VTAB's groups of {tasks}, trained with the reduction at one block, from 0.
"""
_PER_CENT = 100
NONE = "none"
_NAMES = {"bdm": "FPET", "bsm": "BSM", "average-pool": "average pooling", "max-pool": "maximum pooling"}
_APART = 0.06  # of a block, between the bars of two curves

Curves = Mapping[str, Mapping[int, Spread]]


def curves(results: Results) -> tuple[Curves, Spread | None]:
    """Mean accuracy by reduction and block, and that of no reduction, if they are there on all tasks.

    Raises:
        SystemExit: naming the adapters, if there are several, or a method that another has the place of: nothing tells
            their rows apart.
    """
    adapters = dict.fromkeys(map(adapter_of, results.rows))
    if len(adapters) > 1:
        raise SystemExit(f"curves are of one adapter, and there are {', '.join(adapters)}")
    found: dict[str, dict[int, Spread]] = {}
    baseline = None
    for method in results.methods:
        row, mean = results.of(method)[0], results.over_tasks(method, lambda row: row.test_accuracy)
        arguments = json.loads(row.reducer_arguments)
        block = arguments.pop("block", None)
        if mean is None:
            continue
        if row.reducer == NONE:
            _refuse_second(method, baseline)
            baseline = mean
        elif isinstance(block, int):
            others = ", ".join(f"{name} = {json.dumps(value)}" for name, value in arguments.items())
            curve = found.setdefault(f"{row.reducer} ({others})" if others else row.reducer, {})
            _refuse_second(method, curve.get(block))
            curve[block] = mean
    return found, baseline


def _refuse_second(method: str, first: Spread | None) -> None:
    if first is not None:
        raise SystemExit(f"nothing tells {method} from another method of its reduction and block")


def of_data(rows: Sequence[Row], names: Sequence[str]) -> list[Row]:
    """The rows of these data sets, such as those that all reductions have been trained on.

    Raises:
        SystemExit: naming those of which there is none.
    """
    if missing := [name for name in names if name not in {row.data for row in rows}]:
        raise SystemExit(f"there is no row of {', '.join(missing)}")
    return [row for row in rows if row.data in names]


def markdown(rows: Sequence[Row]) -> str:
    """A row a reduction, a column a block."""
    results = Results(rows)
    by_block, baseline = curves(results)
    blocks = _blocks(by_block)
    lines = [
        (name, *(curve[block].text(_PER_CENT) if block in curve else "" for block in blocks))
        for name, curve in by_block.items()
    ]
    if baseline is not None:
        lines.append((NONE, *(baseline.text(_PER_CENT) for _ in blocks)))
    head = _HEAD.format(tasks=", ".join(results.data))
    return "\n".join([head, table(("reduction", *map(str, blocks)), lines), "## Conditions\n", *conditions(rows)])


def plot(rows: Sequence[Row], path: Path) -> None:
    """Draws the curves, with the deviation over seeds as bars; the format goes by the file's name."""
    from matplotlib.figure import Figure  # noqa: PLC0415  # optional

    by_block, baseline = curves(Results(rows))
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    for index, (name, curve) in enumerate(by_block.items()):
        kind, _, others = name.partition(" ")
        shown = " ".join([_NAMES.get(kind, kind), *([others] if others else [])])
        shift = (index - (len(by_block) - 1) / 2) * _APART
        blocks = sorted(curve)
        means = [_PER_CENT * curve[block].mean for block in blocks]
        deviations = [one for block in blocks if (one := curve[block].deviation) is not None]
        bars = [_PER_CENT * one for one in deviations] if len(deviations) == len(blocks) else None
        axes.errorbar([block + shift for block in blocks], means, yerr=bars, marker="o", capsize=2, label=shown)
    if baseline is not None:
        axes.axhline(_PER_CENT * baseline.mean, color="grey", linestyle="--", label="no reduction")
    axes.set(xlabel="merging block", ylabel="test accuracy, per cent")
    axes.set_xticks(_blocks(by_block))
    axes.legend()
    figure.savefig(path, dpi=150)


def _blocks(by_block: Curves) -> list[int]:
    return sorted({block for curve in by_block.values() for block in curve})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path, nargs="+", metavar="CSV", help="what `fpet sweep` wrote")
    parser.add_argument("--plot", type=Path, metavar="PNG", help="also draw the curves; needs matplotlib")
    parser.add_argument("--data", nargs="+", metavar="NAME", help="read the rows of these data sets alone")
    options = parser.parse_args()
    read = read_tables(options.table)
    if options.data:
        read = of_data(read, options.data)
    print(markdown(read))
    if options.plot:
        plot(read, options.plot)
