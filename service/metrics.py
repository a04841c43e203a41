"""The service's Prometheus metrics, in a registry of their own; times are in seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client import Counter, ProcessCollector

from service.metric_registry import MetricRegistry
from service.task_labels import OTHER, TaskLabels

MAX_TASK_LABELS = 100
CALIBRATED = "calibrated"

_COUNTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


@dataclass(frozen=True)
class TaskCost:
    """The share of one task in a batch; tokens are summed over its images.

    reduced: the same in the whole batch; seconds: of the batch, in proportion to the images; baseline_seconds: what
    they would have been without token reduction; None if that is not known, or the batch ran without it.
    """

    task: str
    reduced: bool
    images: int
    tokens_in: int
    tokens_out: int
    seconds: float
    baseline_seconds: float | None


class _ForwardCounters:
    """Counters of what went through the model, by task and by what token reduction has to do with it.

    counter: makes one with the label `task` and others; given its name, its help and the others' names.
    """

    def __init__(self, counter: Callable[..., Counter]) -> None:
        self.images = counter("images", "Images that went through the model.", "tokens")
        self.tokens_in = counter("tokens_in", "Tokens that entered the first block.", "tokens")
        self.tokens_out = counter("tokens_out", "Tokens that left the last block.", "tokens")
        self.seconds = counter("forward_seconds", "Time in the model.", "tokens")
        self.baseline = counter(
            "forward_baseline_seconds",
            "What forward_calibrated_seconds would have been without token reduction.",
            "source",
        )
        self.calibrated = counter(
            "forward_calibrated_seconds",
            'The part of forward_seconds{tokens="reduced"} whose baseline is known.',
        )
        self.shadow = counter(
            "shadow_seconds", "Time of batches that ran again to compare, with token reduction and without.", "tokens"
        )
        self.agreement = counter(
            "shadow_agreement", "Images in them, by whether both ways gave the same label.", "agree"
        )

    def start_at_zero(self, task: str) -> None:
        """The series of a task label."""
        for tokens in ("reduced", "full"):
            for counter in (self.images, self.tokens_in, self.tokens_out, self.seconds, self.shadow):
                counter.labels(task, tokens)
        for agree in ("true", "false"):
            self.agreement.labels(task, agree)
        self.baseline.labels(task, CALIBRATED)
        self.calibrated.labels(task)


class Metrics:
    """All metrics; `codes` and `reasons` are the status codes and failures whose series start at zero."""

    def __init__(self, codes: Iterable[int], reasons: Iterable[str]) -> None:
        self.registry = registry = MetricRegistry()
        counter, gauge, histogram = registry.counter, registry.gauge, registry.histogram
        self._codes, self.tasks = tuple(codes), TaskLabels(MAX_TASK_LABELS)
        ProcessCollector(registry=registry)
        self._requests = self.tasks.on(
            counter("requests", "Requests to infer, by the tasks that they name.", "task", "code")
        )
        self._request_seconds = histogram("request_duration_seconds", "Request to infer, to its answer.", "code")
        self.queue_seconds = histogram("queue_duration_seconds", "Decoded to the start of the forward.")
        self.decode_seconds = histogram("decode_duration_seconds", "Decoding a request's images, waits included.")
        self._forward_duration = histogram("forward_duration_seconds", "One batch in the model.", "tokens")
        self._parallelism = gauge("parallelism", "Of a process: forwards at once, threads in each.", "of")
        self._trials = gauge("trial_forwards_per_second", "Measured at start-up, by workers x threads.", "way")
        self.queue_size = gauge("queue_size", "Images admitted and in no batch yet.")
        self.queue_fill = gauge("queue_fill", "Share of the queue's places that are taken, of the fullest process.")
        self.longest_batch = gauge("longest_batch_seconds", "Age of the oldest batch under way; 0 without one.")
        self.received_bytes = gauge("received_bytes", "Bodies of requests to infer in memory, decompressed.")
        self._batch_size = histogram("batch_size", "Images in a batch.", buckets=_COUNTS)
        self._batch_tasks = histogram("batch_tasks", "Tasks in a batch.", buckets=_COUNTS)
        self._forwards = _ForwardCounters(self.task_counter)
        self.batches = counter(
            "batches",
            "Batches: replayed (captured), of one task's own folded weights (folded), or neither (mixed).",
            "path",
        )
        self._task_bytes = self.tasks.on(gauge("task_bytes", "Size of a loaded task's file.", "task"))
        self.resident_bytes = gauge(
            "resident_bytes",
            "Tensors in memory: of the backbone, its weights in oneDNN's order, of tasks without it, of packed tasks' "
            "dequantised, of folded tasks, and what captured forwards read.",
            "kind",
        )
        self.evictions = counter("evictions", "Folded tasks that had to make room for another.")
        self.task_loads = counter("task_loads", "Task files that loaded, failed, or were refused.", "result")
        self.ready = gauge("ready", "1 while /readyz says so, else 0; of several processes, of those that are there.")
        self.tasks_behind = gauge("tasks_behind", "Tasks of which a process may not have followed a change.")
        self.failures = counter("failures", "Requests that were not answered as asked.", "reason")
        self._start_the_rest_at_zero(reasons)
        self._start_at_zero(OTHER)

    def _start_the_rest_at_zero(self, reasons: Iterable[str]) -> None:
        """The series that have no task."""
        for reason in reasons:
            self.failures.labels(reason)
        for result in ("loaded", "failed", "refused"):
            self.task_loads.labels(result)
        for path in ("mixed", "captured", "folded"):
            self.batches.labels(path)
        for tokens in ("reduced", "full"):
            self._forward_duration.labels(tokens)
        for code in self._codes:
            self._request_seconds.labels(str(code))

    def task_counter(self, name: str, text: str, *labels: str) -> Counter:
        """A new counter fpet_`name` with the label `task` before others; its series are removed with their tasks'."""
        return self.tasks.on(self.registry.counter(name, text, "task", *labels))

    def add_task(self, task: str, size: int) -> None:
        """Gives a task that was put into service a label, if one is left, and sets the size of its file in bytes.

        A label that it had before keeps its counts.
        """
        if self.tasks.add(task):
            self._start_at_zero(task)
        if self.tasks.of(task) == task:
            self._task_bytes.labels(task).set(size)

    def remove_task(self, task: str) -> None:
        """Forgets the size of a task that is no longer in service; its counts stay until its label is needed."""
        if self.tasks.of(task) == task:
            self._task_bytes.remove(task)
        self.tasks.leave(task)

    def set_parallelism(self, workers: int, threads: int, trials: Mapping[str, float]) -> None:
        """Sets how many forwards run at once, in how many threads each, and forwards a second of each way tried."""
        self._parallelism.labels("workers").set(workers)
        self._parallelism.labels("threads").set(threads)
        for way, rate in trials.items():
            self._trials.labels(way).set(rate)

    def count_request(self, tasks: Iterable[str], code: int, seconds: float) -> None:
        """Counts an answered request to infer: once by its duration, and once for each label among its tasks.

        A request that names no task counts with those that name unknown ones.
        """
        for label in {self.tasks.of(task) for task in tasks} or {OTHER}:
            self._requests.labels(label, str(code)).inc()
        self._request_seconds.labels(str(code)).observe(seconds)

    def count_batch(self, forwards: Sequence[TaskCost]) -> None:
        """Counts what ran as one batch, one entry a task."""
        tokens = "reduced" if forwards[0].reduced else "full"
        self._batch_tasks.observe(len(forwards))
        self._batch_size.observe(sum(forward.images for forward in forwards))
        self._forward_duration.labels(tokens).observe(sum(forward.seconds for forward in forwards))
        for forward in forwards:
            labels = (self.tasks.of(forward.task), tokens)
            self._forwards.seconds.labels(*labels).inc(forward.seconds)
            self._forwards.images.labels(*labels).inc(forward.images)
            self._forwards.tokens_in.labels(*labels).inc(forward.tokens_in)
            self._forwards.tokens_out.labels(*labels).inc(forward.tokens_out)
            if forward.baseline_seconds is not None:
                self.count_baseline(forward.task, forward.seconds, forward.baseline_seconds)

    def count_baseline(self, task: str, seconds: float, baseline_seconds: float) -> None:
        """Counts the seconds that reduced forwards, which took `seconds`, would have taken without reduction.

        For forwards whose `TaskCost` had no baseline yet: their `seconds` are in forward_seconds already.
        """
        label = self.tasks.of(task)
        self._forwards.calibrated.labels(label).inc(seconds)
        self._forwards.baseline.labels(label, CALIBRATED).inc(baseline_seconds)

    def count_shadow(
        self, tasks: Sequence[str], agree: Sequence[bool], *, reduced_seconds: float, full_seconds: float
    ) -> None:
        """Counts a batch that ran again in both ways; a task and a truth value an image."""
        for task, same in zip(tasks, agree, strict=True):
            label = self.tasks.of(task)
            self._forwards.agreement.labels(label, str(same).lower()).inc()
            for tokens, seconds in (("reduced", reduced_seconds), ("full", full_seconds)):
                self._forwards.shadow.labels(label, tokens).inc(seconds / len(tasks))

    def _start_at_zero(self, task: str) -> None:
        for code in self._codes:
            self._requests.labels(task, str(code))
        self._forwards.start_at_zero(task)
