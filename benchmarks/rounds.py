"""Timing several ways in turn, so that a drift of the machine's speed meets all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import TypeVar

Result = TypeVar("Result")


def in_turn(ways: Mapping[str, Callable[[], Result]], rounds: int) -> dict[str, list[Result]]:
    """The results of each way, one a round; every round begins with another way."""
    names = list(ways)
    results: dict[str, list[Result]] = {name: [] for name in names}
    for turn in range(rounds):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            results[name].append(ways[name]())
    return results


def spread(values: Sequence[float], digits: int = 3) -> str:
    """The least and the most, to so many digits behind the point."""
    return f"{min(values):.{digits}f} to {max(values):.{digits}f}"


def ratios(values: Sequence[float], others: Sequence[float]) -> list[float]:
    """Of what was timed in the same round."""
    return [a / b for a, b in zip(values, others, strict=True)]


def ratio(values: Sequence[float], others: Sequence[float]) -> float:
    """The median of `ratios`."""
    return median(ratios(values, others))
