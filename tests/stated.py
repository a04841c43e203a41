"""Means with their standard errors, as the pages of results write them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

RESULTS = Path(__file__).parent.parent / "benchmarks" / "results"


def with_error(points: Sequence[float]) -> str:
    """Such as `-0.10 (0.18)`."""
    return f"{statistics.fmean(points):+.2f} ({statistics.stdev(points) / len(points) ** 0.5:.2f})"
