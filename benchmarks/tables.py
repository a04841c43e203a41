"""Accuracy and cost of a sweep's methods as Markdown, beside the same methods without token reduction.

fpet sweep benchmarks/plans/methods-by-tasks.toml --output results.csv
python -m benchmarks.tables results.csv
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.markdown import table
from benchmarks.summary import Results, conditions, read_tables
from fpet.sweeps.results import Row

_ACCURACY = """## Accuracy

Per cent of the test images, as the paper's tables 2 and 3; {seeds}. The last column is the mean of VTAB's three
groups of tasks, of methods that have them all; the one before it that of the same weights without their token
reduction.
"""
_COST = """## Cost

As the paper's tables 1, 2 and 4. Parameters are those of adapter and reduction without the head; bytes are those of the
task file with it, mean over tasks; GMACs are those of one image, with the adapter folded where it folds. Ratios and
difference are relative to the same adapter trained without token reduction by the same recipe, on the same task with
the same seed, and empty where there is no such run: the median ratio of an epoch's time, and of memory ({memory}), and
the mean difference in points.
"""
_MEMORY = {
    "allocated": "the most that was allocated on the GPU",
    "kept": "what autograd keeps for the backward pass of one step, without the model's own tensors",
}
_PER_CENT = 100


def markdown(rows: Sequence[Row]) -> str:
    """All of it."""
    results = Results(rows)
    memory = ", ".join(_MEMORY[kind] for kind in dict.fromkeys(row.memory for row in results.rows))
    count = len(results.seeds)
    seeds = "one seed" if count == 1 else f"mean ± standard deviation over {count} seeds"
    return "\n".join(
        [
            *(_ACCURACY.format(seeds=seeds), table(_accuracy_head(results), _accuracy(results))),
            *(_COST.format(memory=memory), table(_COST_HEAD, _cost(results))),
            *("## Conditions\n", *conditions(rows)),
        ]
    )


_COST_HEAD = ("method", "parameters", "bytes", "tokens", "GMACs", "time ratio", "memory ratio", "difference")


def _accuracy_head(results: Results) -> Sequence[str]:
    return ["method", *results.data, "mean, all tokens", "mean"]


def _accuracy(results: Results) -> Iterator[Sequence[str]]:
    for method in results.methods:
        cells = [results.on(method, data, lambda row: row.test_accuracy) for data in results.data]
        cells.append(results.over_tasks(method, lambda row: row.test_accuracy_unreduced))
        cells.append(results.over_tasks(method, lambda row: row.test_accuracy))
        yield method, *(cell.text(_PER_CENT) if cell else "" for cell in cells)


def _cost(results: Results) -> Iterator[Sequence[str]]:
    for method in results.methods:
        rows = results.of(method)
        ratios = [
            results.ratio(method, value) for value in (lambda row: row.epoch_seconds, lambda row: row.memory_bytes)
        ]
        difference = results.over_tasks(method, lambda row: _difference(row, results.without(row)))
        yield (
            method,
            f"{rows[0].parameters:,}",
            f"{statistics.fmean(row.task_bytes or 0 for row in rows):,.0f}",
            f"{rows[0].tokens_in} → {statistics.fmean(row.tokens_out or 0 for row in rows):.4g}",
            "" if rows[0].gmacs is None else f"{rows[0].gmacs:.3f}",
            *("" if ratio is None else f"{ratio:.3f}" for ratio in ratios),
            difference.text(_PER_CENT, sign="+") if difference else "",
        )


def _difference(row: Row, measure: Row | None) -> float | None:
    if row.test_accuracy is None or measure is None or measure.test_accuracy is None:
        return None
    return row.test_accuracy - measure.test_accuracy


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path, nargs="+", metavar="CSV", help="what `fpet sweep` wrote")
    print(markdown(read_tables(parser.parse_args().table)))
