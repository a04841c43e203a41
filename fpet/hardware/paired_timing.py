"""Timing two ways to do the same, in turn."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable


def alternate(
    repeats: int, seconds: Callable[[bool], float], *, shortest: float = 0.0, longest: float = math.inf
) -> tuple[list[float], list[float]]:
    """Times of `seconds(True)` and of `seconds(False)`, run in pairs in which each is first in turn, so that a drift of
    the machine's speed meets both.

    seconds: runs one and returns the seconds that it took. There are `repeats` pairs; more until they have taken
    `shortest` together, and, after the first, no more once they have taken `longest` together or that much time has
    passed, which is sooner where others have the processor meanwhile.
    """
    times: dict[bool, list[float]] = {True: [], False: []}
    taken, began = 0.0, time.perf_counter()
    for i in itertools.count():
        if (i >= repeats and taken >= shortest) or (i > 0 and max(taken, time.perf_counter() - began) >= longest):
            break
        for which in (True, False) if i % 2 == 0 else (False, True):
            times[which].append(seconds(which))
        taken = sum(times[True]) + sum(times[False])
    return times[True], times[False]
