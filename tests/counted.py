"""What counters say, for tests that look at single ones."""

from __future__ import annotations

from service.metrics import Metrics
from service.metrics_snapshot import MetricsSnapshot
from service.savings import savings
from service.schemas import TaskSavings


def savings_of(metrics: Metrics) -> list[TaskSavings]:
    """What was saved, by task label."""
    return savings(MetricsSnapshot(metrics.registry), metrics.tasks.all())


def saving_of(metrics: Metrics, task: str) -> TaskSavings:
    """What was saved by a task."""
    (saving,) = [saving for saving in savings_of(metrics) if saving.task == task]
    return saving
