"""Random draws that are the same on every machine and with every version of Python."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TypeVar

T = TypeVar("T")


class Dice:
    """Draws made of `Random.random` alone, the one method whose sequence for a seed Python promises to keep."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def between(self, low: float, high: float) -> float:
        """A number in [low, high)."""
        return low + (high - low) * self._random.random()

    def below(self, count: int) -> int:
        """A whole number in [0, count)."""
        return int(count * self._random.random())

    def choose(self, values: Sequence[T]) -> T:
        """One of the values."""
        return values[self.below(len(values))]
