"""What token reduction changes in accuracy: every run beside the one that differs in having none.

fpet sweep benchmarks/plans/pairs.toml --output pairs.csv
python -m benchmarks.pairs pairs.csv
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.markdown import table
from benchmarks.summary import Results, conditions, read_tables
from fpet.sweeps.results import Row

_MEANS = """## Differences

Points of accuracy on the test images that token reduction changes, the mean over pairs and its standard error, as if
pairs were independent: when trained and tested with it, and when trained with it and tested with all tokens.
"""
_PAIRS = """## Pairs

Per cent of the test images; the difference, in points, is what training and testing with token reduction changes.
"""
_MEANS_HEAD = ("of", "pairs", "with reduction", "its weights, all tokens")
_PAIRS_HEAD = ("method", "task", "seed", "without", "with", "its weights, all tokens", "difference")
_PER_CENT = 100


@dataclass(frozen=True)
class Pair:
    """Two runs that differ in token reduction alone. Differences are fractions of the test images."""

    without: Row
    reduced: Row

    @property
    def difference(self) -> float:
        """What training and testing with token reduction changes."""
        return _accuracy(self.reduced.test_accuracy) - _accuracy(self.without.test_accuracy)

    @property
    def difference_unreduced(self) -> float:
        """What training with it changes, tested with all tokens."""
        return _accuracy(self.reduced.test_accuracy_unreduced) - _accuracy(self.without.test_accuracy)


def pairs_of(rows: Sequence[Row]) -> list[Pair]:
    """The finished rows with token reduction that have a measure, by seed, else in their order.

    Raises:
        SystemExit: there is none.
    """
    results = Results(rows)
    rows_by_seed = sorted(results.rows, key=lambda row: row.seed)
    found = [Pair(measure, row) for row in rows_by_seed if (measure := results.without(row)) is not None]
    if not found:
        raise SystemExit("no run with token reduction has one beside it that differs in having none")
    return found


def markdown(rows: Sequence[Row]) -> str:
    """All of it."""
    pairs = pairs_of(rows)
    return "\n".join(
        [
            *(_MEANS, table(_MEANS_HEAD, _means(pairs))),
            *(_PAIRS, table(_PAIRS_HEAD, _each(pairs))),
            *("## Conditions\n", *conditions(rows)),
        ]
    )


def _means(pairs: Sequence[Pair]) -> Iterator[Sequence[str]]:
    """All pairs, then those of each method, task and seed, where there are several of a kind."""
    yield _mean("all", pairs)
    kinds: Sequence[Callable[[Pair], str]] = (
        lambda pair: pair.reduced.method,
        lambda pair: pair.reduced.data,
        lambda pair: f"seed {pair.reduced.seed}",
    )
    for kind in kinds:
        names = dict.fromkeys(map(kind, pairs))
        if len(names) > 1:
            yield from (_mean(name, [pair for pair in pairs if kind(pair) == name]) for name in names)


def _mean(name: str, pairs: Sequence[Pair]) -> Sequence[str]:
    reduced = [pair.difference for pair in pairs]
    unreduced = [pair.difference_unreduced for pair in pairs]
    return name, str(len(pairs)), _with_error(reduced), _with_error(unreduced)


def _with_error(values: Sequence[float]) -> str:
    """A mean, and in brackets its standard error if there are several."""
    mean = f"{_PER_CENT * statistics.fmean(values):+.2f}"
    if len(values) == 1:
        return mean
    return f"{mean} ({_PER_CENT * statistics.stdev(values) / len(values) ** 0.5:.2f})"


def _each(pairs: Sequence[Pair]) -> Iterator[Sequence[str]]:
    for pair in pairs:
        accuracies = (
            pair.without.test_accuracy,
            pair.reduced.test_accuracy,
            pair.reduced.test_accuracy_unreduced,
        )
        yield (
            *(pair.reduced.method, pair.reduced.data, str(pair.reduced.seed)),
            *(f"{_PER_CENT * _accuracy(value):.2f}" for value in accuracies),
            f"{_PER_CENT * pair.difference:+.2f}",
        )


def _accuracy(value: float | None) -> float:
    """That of a run that was tested; `fpet sweep` writes no other without an error."""
    if value is None:
        raise SystemExit("a run without an error has no accuracy of the test: the table is damaged")
    return value


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path, nargs="+", metavar="CSV", help="what `fpet sweep` wrote")
    print(markdown(read_tables(parser.parse_args().table)))
