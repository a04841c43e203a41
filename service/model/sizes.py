"""Batch sizes that are measured, and what lies between them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise


def doublings(largest: int) -> list[int]:
    """1, 2, 4, ... and the largest."""
    return sorted({*(2**i for i in range(largest.bit_length())), largest})


def interpolated(measured: Sequence[tuple[int, float]], at: int) -> float:
    """A value between those measured, of which there is one at least: linear between two, constant beyond all.

    measured: (where, value), ascending.
    """
    if at <= measured[0][0]:
        return measured[0][1]
    for (low, low_value), (high, high_value) in pairwise(measured):
        if at <= high:
            return low_value + (at - low) / (high - low) * (high_value - low_value)
    return measured[-1][1]
