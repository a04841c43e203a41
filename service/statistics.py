"""Inferences by task and outcome, counted in the registry of `metrics`."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from service.metrics import Metrics
from service.metrics_snapshot import MetricsSnapshot

Result = Literal["success", "failure"]
Stage = Literal["decode", "queue", "inference"]


@dataclass(frozen=True)
class Total:
    """The number of events, and their total duration."""

    count: int
    seconds: float


class Statistics:
    """Counters of inferences by task, over both protocols, since the start of the service."""

    def __init__(self, metrics: Metrics) -> None:
        self._tasks = metrics.tasks
        counter = metrics.task_counter
        self._requests = counter("inferences", "Requests by task whose images were to be inferred.", "result")
        self._seconds = counter("inference_seconds", "Time that they took in all.", "result")
        self._stages = counter("stage_seconds", "Time of those that succeeded, by stage.", "stage")
        self._images = counter("inferred_images", "Images in those that succeeded.")
        self._batches = counter("task_batches", "Batches with images of the task.")
        self._last = self._tasks.on(
            metrics.registry.gauge("last_inference_timestamp_seconds", "When one last succeeded.", "task")
        )

    @contextmanager
    def counted(self, tasks: Sequence[str]) -> Iterator[None]:
        """Counts what runs inside as one request to each of the tasks, which fails if it raises or is cancelled."""
        started, result = time.perf_counter(), "failure"
        try:
            yield
            result = "success"
        finally:
            seconds = time.perf_counter() - started
            for task in tasks:
                self._requests.labels(self._tasks.of(task), result).inc()
                self._seconds.labels(self._tasks.of(task), result).inc(seconds)

    def count_stages(self, task: str, images: int, *, decode: float, queue: float, inference: float) -> None:
        """Counts the images and the stages, in seconds, of a request that succeeds."""
        label = self._tasks.of(task)
        for stage, seconds in (("decode", decode), ("queue", queue), ("inference", inference)):
            self._stages.labels(label, stage).inc(seconds)
        self._images.labels(label).inc(images)
        self._last.labels(label).set_to_current_time()

    def count_batch(self, tasks: Iterable[str]) -> None:
        """Counts a batch, given the task of each of its images."""
        for label in {self._tasks.of(task) for task in tasks}:
            self._batches.labels(label).inc()

    def has(self, task: str) -> bool:
        """Whether the task has counters of its own: those beyond the cap of labels share theirs."""
        return self._tasks.of(task) == task


class Counted:
    """What a snapshot of the metrics says, by task."""

    def __init__(self, snapshot: MetricsSnapshot) -> None:
        self._value = snapshot.value

    def requests(self, task: str, result: Result) -> Total:
        """Requests by outcome."""
        count = self._value("inferences_total", task=task, result=result)
        return Total(int(count), self._value("inference_seconds_total", task=task, result=result))

    def stage(self, task: str, stage: Stage) -> Total:
        """One stage of the requests that succeeded."""
        seconds = self._value("stage_seconds_total", task=task, stage=stage)
        return Total(self.requests(task, "success").count, seconds)

    def images(self, task: str) -> int:
        """Images in requests that succeeded."""
        return int(self._value("inferred_images_total", task=task))

    def batches(self, task: str) -> int:
        """Batches that ran with images of the task."""
        return int(self._value("task_batches_total", task=task))

    def last(self, task: str) -> float:
        """When a request last succeeded, in seconds since the epoch; 0 if none did."""
        return self._value("last_inference_timestamp_seconds", task=task)
