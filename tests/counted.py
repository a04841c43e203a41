"""What counters say, for tests that look at single ones."""

from __future__ import annotations

from service.metrics import Metrics
from service.savings import savings
from service.schemas import TaskSavings


def saving_of(metrics: Metrics, task: str) -> TaskSavings:
    """What was saved by a task."""
    (saving,) = [saving for saving in savings(metrics) if saving.task == task]
    return saving
