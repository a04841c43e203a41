"""Which tasks are told apart in the metrics: a limited number, whatever comes and goes in the life of a process."""

from __future__ import annotations

from typing import TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge

OTHER = "_other"  # of names that are no task, and of tasks beyond the limit; no task can be called so

Metric = TypeVar("Metric", Counter, Gauge)


class TaskLabels:
    """The values of the label `task`; any thread may read them, one changes them. most: beside `OTHER`.

    What is counted in the very moment in which its label goes may bring a series of it back, which nothing reads.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._own: set[str] = set()
        self._left: dict[str, None] = {}  # that are out of service, longest first
        self._metrics: list[Counter | Gauge] = []

    def of(self, task: str) -> str:
        """The label under which a task, or a name that is none, is counted."""
        return task if task in self._own else OTHER

    def all(self) -> list[str]:
        """Every label, in order."""
        return sorted({OTHER, *self._own})

    def on(self, metric: Metric) -> Metric:
        """The metric, which has the label; its series are removed with the labels of their tasks."""
        self._metrics.append(metric)
        return metric

    def counter(self, registry: CollectorRegistry, name: str, text: str, *labels: str) -> Counter:
        """The new counter fpet_`name`, with the label `task` before others."""
        return self.on(Counter(name, text, ("task", *labels), namespace="fpet", registry=registry))

    def add(self, task: str) -> bool:
        """Gives a task that comes into service a label of its own, if need be that of one that left; whether it is new.

        Until then the series of a task that left stay as they are, so that its last counts are still collected.
        """
        self._left.pop(task, None)
        if task in self._own:
            return False
        if len(self._own) == self._most:
            if not self._left:
                return False
            self._remove(next(iter(self._left)))
        self._own.add(task)
        return True

    def leave(self, task: str) -> None:
        """Tells that a task is out of service."""
        if task in self._own:
            self._left[task] = None

    def _remove(self, task: str) -> None:
        del self._left[task]
        self._own.remove(task)
        for metric in self._metrics:
            metric.remove_by_labels({"task": task})
