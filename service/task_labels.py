"""The values of the metrics' label `task`: a limited number, however many tasks come and go."""

from __future__ import annotations

from typing import TypeVar

from prometheus_client import Counter, Gauge

OTHER = "_other"  # of names that are no task, and of tasks beyond the limit; no task can be called so

Metric = TypeVar("Metric", Counter, Gauge)


class TaskLabels:
    """Labels of tasks, at most `most` beside `OTHER`; any thread may read them, one thread changes them.

    A count at the very moment in which its label is removed may create one of its series anew, which nothing reads.
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
        """Registers a metric that has the label `task`: its series are removed with the labels; returns the metric."""
        self._metrics.append(metric)
        return metric

    def add(self, task: str) -> bool:
        """Gives a task that comes into service a label of its own; returns whether the label is new.

        If there are no more labels, that of the task that left service first is removed, or the task has none. Until
        then the series of a task that left stay, so that its last counts are still collected.
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
        """Notes that a task is out of service, and its label may be removed."""
        if task in self._own:
            self._left[task] = None

    def _remove(self, task: str) -> None:
        del self._left[task]
        self._own.remove(task)
        for metric in self._metrics:
            metric.remove_by_labels({"task": task})
