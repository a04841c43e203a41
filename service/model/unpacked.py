"""The weights of tasks as forwards need them: those of packed tasks are dequantised, and kept within a budget."""

from __future__ import annotations

import itertools
import threading
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from fpet.inference.task_weights import Weights
from service.model.loaded import LoadedTask


@dataclass
class _Kept:
    weights: Weights
    used: int


class Unpacked:
    """Weights of the packed tasks that were asked last. What was not asked for the longest goes first, and what is no
    longer in service at once. Any thread may call the methods.

    budget: bytes for all of them; what does not fit is dequantised for every batch.
    """

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._kept: WeakKeyDictionary[LoadedTask, _Kept] = WeakKeyDictionary()
        self._uses = itertools.count()
        self._lock = threading.Lock()

    @property
    def bytes(self) -> int:
        """Bytes of all weights that are kept."""
        with self._lock:
            return self._bytes()

    def weights(self, task: LoadedTask) -> Weights:
        """A task's weights on the device."""
        if isinstance(task.weights, Weights):
            return task.weights
        with self._lock:
            kept = self._kept.get(task)
            if kept is not None:
                kept.used = next(self._uses)
                return kept.weights
        weights = task.weights.unpack()  # outside, so that nobody waits; two may do it at once, to the same numbers
        if weights.nbytes <= self._budget:
            with self._lock:
                self._kept[task] = _Kept(weights, next(self._uses))
                while self._bytes() > self._budget:
                    del self._kept[min(self._kept, key=lambda other: self._kept[other].used)]
        return weights

    def _bytes(self) -> int:
        return sum(kept.weights.nbytes for kept in self._kept.values())
