"""Timings of a family's forwards, and seconds in service that wait for timings to get their baselines."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache

from service.model.calibration import Calibration, Point


class Timings:
    """The timings of a family's tasks, kept apart for those that are folded. Any thread may call the methods."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._started: set[tuple[bool, int]] = set()
        self._calibrations = {False: Calibration(), True: Calibration()}
        self._waiting: defaultdict[tuple[bool, str, int], float] = defaultdict(float)
        self._hopeless = False

    @contextmanager
    def attempt(self, folded: bool, batch_size: int) -> Iterator[bool]:
        """Yields whether the caller is the first to time batches of that size; if the block raises, the next one is."""
        with self._lock:
            first = (folded, batch_size) not in self._started
            self._started.add((folded, batch_size))
        try:
            yield first
        except BaseException:
            if first:
                with self._lock:
                    self._started.discard((folded, batch_size))
            raise

    def calibration(self, folded: bool) -> Calibration:
        """The timings that a baseline rests on; as long as there are none of folded tasks, those of others."""
        own = self._calibrations[folded]
        return own if own.points else self._calibrations[False]

    def baseline(self, folded: bool, task: str, batch_size: int, seconds: float) -> float | None:
        """Seconds that a reduced batch, or a task's part of it, would have taken without reduction.

        None if that is not known yet: `join` tells it once it is, unless `give_up` said that it never will be.
        """
        with self._lock:
            ratio = self._ratio(folded, batch_size)
            if ratio is None:
                if not self._hopeless:
                    self._waiting[folded, task, batch_size] += seconds
                return None
        return ratio * seconds

    def give_up(self) -> None:
        """Called if nothing will be timed: drops the seconds that wait for a baseline, and lets none wait any more."""
        with self._lock:
            self._hopeless = True
            self._waiting.clear()

    @property
    def awaited(self) -> bool:
        """Whether seconds wait for a baseline."""
        with self._lock:
            return bool(self._waiting)

    def join(self, folded: bool, point: Point) -> list[tuple[str, float, float]]:
        """Adds the timings of a batch size; returns the tasks whose seconds waited for them, those seconds, and their
        baselines."""
        with self._lock:
            self._calibrations[folded] = self._calibrations[folded].joined_by(point)
            known = [(key, ratio) for key in self._waiting if (ratio := self._ratio(key[0], key[2])) is not None]
            return [(key[1], seconds := self._waiting.pop(key), ratio * seconds) for key, ratio in known]

    def _ratio(self, folded: bool, batch_size: int) -> float | None:
        """None for a batch larger than all timed so far: its timings are still to come."""
        for calibration in (self._calibrations[folded], self._calibrations[False]):
            if calibration.points and batch_size <= calibration.points[-1].batch_size:
                return calibration.ratio_at(batch_size)
        return None


def timings_by_family(count: int) -> Callable[[str], Timings]:
    """A cache from the names of families to their timings, of the `count` families that were asked for last."""

    @lru_cache(count)
    def timings(_: str) -> Timings:
        return Timings()

    return timings
