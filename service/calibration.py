"""What a forward would cost without token reduction, from timings taken at start-up.

In service only the reduced forward runs, and under load it takes longer than on an idle machine. So the baseline of a
batch is its own measured time multiplied by the ratio of the two forwards at its size: whatever else the machine does
slows both, and their ratio was measured in turn.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median


@dataclass(frozen=True)
class Point:
    """Median seconds of a forward of that many images, with and without token reduction."""

    batch_size: int
    reduced_seconds: float
    full_seconds: float

    @property
    def ratio(self) -> float:
        """Above 1 where reduction saves time."""
        return self.full_seconds / self.reduced_seconds


def batch_sizes(largest: int) -> list[int]:
    """1, 2, 4, ... and the largest."""
    return sorted({*(2**i for i in range(largest.bit_length())), largest})


def measure(
    batch_size: int, repeats: int, seconds: Callable[[bool], float], *, shortest: float = 0.0, longest: float = math.inf
) -> Point:
    """Times both forwards of a batch of that size, as `alternate` does."""
    reduced, full = alternate(repeats, seconds, shortest=shortest, longest=longest)
    return Point(batch_size, median(reduced), median(full))


def alternate(
    repeats: int, seconds: Callable[[bool], float], *, shortest: float = 0.0, longest: float = math.inf
) -> tuple[list[float], list[float]]:
    """Seconds of True and of False, each first in turn, so that a drift of the machine's speed meets both.

    seconds: runs one and returns what it took. Both are repeated until they have taken `shortest` together, even if
    that is more often, and no more once they have taken `longest`.
    """
    times: dict[bool, list[float]] = {True: [], False: []}
    taken = 0.0
    for i in itertools.count():
        if (i >= repeats and taken >= shortest) or (i > 0 and taken >= longest):
            break
        for which in (True, False) if i % 2 == 0 else (False, True):
            times[which].append(seconds(which))
        taken = sum(times[True]) + sum(times[False])
    return times[True], times[False]


def ratio_at(points: Sequence[Point], batch_size: int) -> float:
    """Unreduced over reduced time: linear between the sizes measured (ascending), constant beyond them."""
    if batch_size <= points[0].batch_size:
        return points[0].ratio
    for low, high in pairwise(points):
        if batch_size <= high.batch_size:
            weight = (batch_size - low.batch_size) / (high.batch_size - low.batch_size)
            return low.ratio + weight * (high.ratio - low.ratio)
    return points[-1].ratio
