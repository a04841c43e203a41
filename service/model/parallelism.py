"""How many forwards run at once, and in how many threads each: as configured, or as measured to be the fastest."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from statistics import median
from typing import NamedTuple

from service.model.sizes import doublings
from service.worker_threads import torch_threads

logger = logging.getLogger(__name__)

_ROUNDS = 5
# A slow forward is timed in fewer rounds; it varies less.
_SECONDS = 1.5
# What the measurement has to show before it is believed.
_GAIN = 0.05
# More than this in one forward gain little, and timing them would take long.
_MOST_THREADS = 8


class Parallelism(NamedTuple):
    """Forwards at once, and threads in each of them."""

    workers: int
    threads: int

    def __str__(self) -> str:
        return f"{self.workers} x {self.threads}"


def candidates(cores: int, workers: int, threads: int) -> list[Parallelism]:
    """The ways to make use of that many cores, those with fewer threads first; 0 workers or threads: open."""
    if threads:
        return [Parallelism(workers or max(1, cores // threads), threads)]
    most = min(_MOST_THREADS, max(1, cores // (workers or 1)))
    return [Parallelism(workers or cores // count, count) for count in doublings(most)]


def measure_rates(ways: Sequence[Parallelism], forward: Callable[[], object]) -> dict[Parallelism, float]:
    """Forwards a second in each way: medians over rounds, in each of which all ways run as many, after a warm-up."""
    forwards = max(way.workers for way in ways)
    times: dict[Parallelism, list[float]] = {way: [] for way in ways}
    with ExitStack() as stack:
        pools = {way: stack.enter_context(torch_threads("measure", *way)) for way in ways}

        def seconds(way: Parallelism) -> float:
            started = time.perf_counter()
            for done in [pools[way].submit(forward) for _ in range(forwards)]:
                done.result()
            return time.perf_counter() - started

        for way in ways:
            seconds(way)
        end = time.perf_counter() + _SECONDS
        for i in range(_ROUNDS):
            # Each is first in turn, so that a drift of the machine's speed meets all.
            for way in ways if i % 2 == 0 else reversed(ways):
                times[way].append(seconds(way))
            if time.perf_counter() > end:
                break
    return {way: forwards / median(times[way]) for way in ways}


def best(rates: Mapping[Parallelism, float]) -> Parallelism:
    """The fastest way, or the first one unless the fastest beats it by more than the error of the measurement."""
    first, fastest = next(iter(rates)), max(rates, key=lambda way: rates[way])
    return fastest if rates[fastest] > (1 + _GAIN) * rates[first] else first


def choose(ways: Sequence[Parallelism], forward: Callable[[], object]) -> tuple[Parallelism, dict[Parallelism, float]]:
    """One of these ways, and forwards a second of each if there was a choice; it is logged, with the reason."""
    if len(ways) == 1:
        logger.info("forwards at once x threads in each: %s, the only choice", ways[0])
        return ways[0], {}
    rates = measure_rates(ways, forward)
    chosen = best(rates)
    found = ", ".join(f"{way}: {rate:.1f}" for way, rate in rates.items())
    logger.info("forwards at once x threads in each: %s, of these by forwards a second: %s", chosen, found)
    return chosen, rates
