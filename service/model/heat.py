"""The share of each task in the latest images, by which hot tasks are found."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

Key = TypeVar("Key")

_MEMORY = 1000  # images after which one counts 1/e as much
_SMOOTHING = 0.2  # weight of the newest batch in the running means `own` and `beside`


@dataclass
class _Task:
    share: float = 0.0
    at: int = 0  # images seen when the share was last brought up to date
    own: float = 0.0  # images of the task in a batch that has any
    beside: float = 0.0  # and of others
    told: int | None = None  # images seen when it was last told to be hot; None if it is not


class Heat(Generic[Key]):
    """Tasks' shares of the latest images, in an exponentially decaying mean that starts at zero.

    A task is hot from a share of `threshold` on, until its share is below half of that: one whose share wavers about
    the threshold does not become hot with every batch. Any thread may call it; it keeps no task alive.
    """

    def __init__(self, threshold: float) -> None:
        self._threshold = threshold
        self._seen = 0
        self._tasks: WeakKeyDictionary[Key, _Task] = WeakKeyDictionary()
        self._lock = threading.Lock()

    def add(self, images: Mapping[Key, int], *, apart: bool = False) -> list[Key]:
        """Counts a batch, as images by task; returns the tasks that have just become hot, and again every 1,000 images
        while they stay so. apart: the batch was of a folded task, so it does not say how the task mixes with others."""
        total = sum(images.values())
        with self._lock:
            self._seen += total
            return [key for key, count in images.items() if self._tells(key, count, total, apart)]

    def batch(self, key: Key) -> tuple[int, int]:
        """Mean images of the task (at least 1) and of others in a batch with the task; 1 and 0 if there was none
        yet."""
        with self._lock:
            task = self._tasks.get(key, _Task())
            return max(1, round(task.own)), round(task.beside)

    def share(self, key: Key) -> float:
        """The task's share of the latest images by now."""
        with self._lock:
            return self._share(self._tasks.get(key, _Task()))

    def _share(self, task: _Task) -> float:
        return task.share * math.exp((task.at - self._seen) / _MEMORY)

    def _tells(self, key: Key, count: int, total: int, apart: bool) -> bool:
        task = self._tasks.setdefault(key, _Task(own=count, beside=total - count))
        before = self._share(task)
        task.share = before - count / total * math.expm1(-total / _MEMORY)
        task.at = self._seen
        if not apart:
            task.own += _SMOOTHING * (count - task.own)
            task.beside += _SMOOTHING * (total - count - task.beside)
        told = task.told if before >= self._threshold / 2 else None
        tells = task.share >= self._threshold if told is None else self._seen - told >= _MEMORY
        task.told = self._seen if tells else told
        return tells
