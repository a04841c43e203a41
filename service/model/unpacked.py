"""The weights of tasks as forwards need them: those of packed tasks are dequantised, and kept within a budget."""

from __future__ import annotations

import threading
from weakref import WeakKeyDictionary

from fpet.inference.task_weights import Weights
from service.model.loaded import LoadedTask


class Unpacked:
    """A cache of the weights of packed tasks: least recently used first out, and those of a task that is no longer
    referenced at once. Any thread may call the methods.

    budget: bytes for all of them; what does not fit is dequantised for every batch.
    """

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._kept: WeakKeyDictionary[LoadedTask, Weights] = WeakKeyDictionary()  # least recently used first
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
            if (kept := self._kept.get(task)) is not None:
                self._move_to_end(task, kept)
                return kept
        weights = task.weights.unpack()  # outside, so that nobody waits; two may do it at once, to the same numbers
        if weights.nbytes <= self._budget:
            with self._lock:
                self._move_to_end(task, weights)
                while self._bytes() > self._budget:
                    del self._kept[next(iter(self._kept))]
        return weights

    def _move_to_end(self, task: LoadedTask, weights: Weights) -> None:
        self._kept.pop(task, None)
        self._kept[task] = weights

    def _bytes(self) -> int:
        return sum(weights.nbytes for weights in self._kept.values())
