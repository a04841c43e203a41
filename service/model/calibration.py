"""What a forward would cost without token reduction, from timings of its family.

In service only the reduced forward runs, and under load it takes longer than on an idle machine. So the baseline of a
batch is its own measured time multiplied by the ratio of the two forwards at its size: whatever else the machine does
slows both, and their ratio was measured in turn.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from statistics import median

from fpet.hardware.paired_timing import alternate
from service.model.sizes import interpolated

# A machine that does other work makes single pairs of timings differ by a tenth: so many tell what is common to them.
_ENOUGH_PAIRS = 12


@dataclass(frozen=True)
class Point:
    """Seconds of forwards of that many images, each with token reduction beside the one without it timed in turn."""

    batch_size: int
    reduced: tuple[float, ...]
    full: tuple[float, ...]

    @property
    def medians(self) -> tuple[float, float]:
        """Median seconds of the forwards with token reduction, and of those without."""
        return median(self.reduced), median(self.full)

    @property
    def ratios(self) -> list[float]:
        """Unreduced over reduced time of each pair, above 1 where reduction saved time."""
        return [full / reduced for reduced, full in zip(self.reduced, self.full, strict=True)]


@dataclass(frozen=True)
class Calibration:
    """What a forward costs without token reduction, at the sizes of `points`, which ascend."""

    points: tuple[Point, ...] = ()

    def joined_by(self, point: Point) -> Calibration:
        """With a point of another size, which two threads may time in any order."""
        return Calibration(tuple(sorted((*self.points, point), key=lambda each: each.batch_size)))

    @cached_property
    def ratios(self) -> tuple[float, ...]:
        """Unreduced over reduced time at each point: the median of its pairs.

        Where those are few, pairs of the sizes next to it count as well: with the size the ratio changes less than from
        one pair to another.
        """
        return tuple(median(self._pairs(i)) for i in range(len(self.points)))

    def _pairs(self, i: int) -> list[float]:
        pairs = self.points[i].ratios
        for distance in range(1, len(self.points)):
            lacking = _ENOUGH_PAIRS - len(pairs)
            if lacking <= 0:
                break
            near = [self.points[k] for k in (i - distance, i + distance) if 0 <= k < len(self.points)]
            pairs.extend(ratio for point in near for ratio in point.ratios[:lacking])
        return pairs

    def ratio_at(self, batch_size: int) -> float:
        """Unreduced over reduced time: linear between the points, of which there is one at least, constant beyond."""
        return interpolated(
            list(zip((point.batch_size for point in self.points), self.ratios, strict=True)), batch_size
        )


def measure_point(
    batch_size: int, repeats: int, seconds: Callable[[bool], float], *, shortest: float = 0.0, longest: float = math.inf
) -> Point:
    """Times both forwards of a batch of that size, as `alternate` does."""
    reduced, full = alternate(repeats, seconds, shortest=shortest, longest=longest)
    return Point(batch_size, tuple(reduced), tuple(full))
