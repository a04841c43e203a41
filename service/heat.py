"""Which tasks are asked the most."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

Key = TypeVar("Key")

_MEMORY = 1000  # images after which one counts 1/e as much
_SMOOTHING = 0.2  # weight of the newest batch in the running mean of a task's images in a batch


@dataclass
class _Task:
    share: float = 0.0
    at: int = 0  # images seen when the share was last brought up to date
    batch: float = 0.0
    hot: bool = False


class Heat(Generic[Key]):
    """Tasks' shares of the latest images, in an exponentially decaying mean that starts at zero.

    A task is hot from a share of `threshold` on, until its share is below half of that: one whose share wavers about
    the threshold does not become hot again and again. Any thread may call it; it keeps no task alive.
    """

    def __init__(self, threshold: float) -> None:
        self._threshold = threshold
        self._seen = 0
        self._tasks: WeakKeyDictionary[Key, _Task] = WeakKeyDictionary()
        self._lock = threading.Lock()

    def add(self, images: Mapping[Key, int]) -> list[Key]:
        """Counts a batch, as images by task; returns the tasks that became hot with it."""
        total = sum(images.values())
        with self._lock:
            self._seen += total
            return [key for key, count in images.items() if self._became_hot(key, count, total)]

    def batch_size(self, key: Key) -> int:
        """How many images of the task a batch has that has any; 1 if there was none yet."""
        with self._lock:
            return max(1, round(self._tasks.get(key, _Task()).batch))

    def _became_hot(self, key: Key, count: int, total: int) -> bool:
        task = self._tasks.setdefault(key, _Task(batch=count))
        before = task.share * math.exp((task.at - self._seen) / _MEMORY)
        task.share = before - count / total * math.expm1(-total / _MEMORY)
        task.at = self._seen
        task.batch += _SMOOTHING * (count - task.batch)
        was_hot = task.hot and before >= self._threshold / 2
        task.hot = was_hot or task.share >= self._threshold
        return task.hot and not was_hot
