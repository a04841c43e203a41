"""The metrics of several processes as those of one."""

from __future__ import annotations

import json
import operator
from collections.abc import Iterator, Sequence
from itertools import chain

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

# Merged by the maximum: every process has the same value, or the sum has no meaning.
_LARGEST = frozenset(
    {
        "fpet_build",
        "fpet_last_inference_timestamp_seconds",
        "fpet_longest_batch_seconds",
        "fpet_parallelism",
        "fpet_queue_fill",
        "fpet_task_bytes",
        "fpet_tasks",
        "fpet_tasks_answering",
        "fpet_trial_forwards_per_second",
        "process_max_fds",  # each process has its own
        "process_open_fds",
    }
)
_SMALLEST = frozenset({"fpet_ready"})
_STARTED = "process_start_time_seconds"


class Sums(Collector):
    """What one process collects, merged with what others packed: series of the same name and labels become one, with
    the sum of their values, or their maximum or minimum for the metrics of `_LARGEST` and `_SMALLEST`.

    started: the start of the service, in seconds since 1970. By those of its processes, which are only restarted
    together, it would seem to start again with each that joins.
    """

    def __init__(self, own: Collector, packed: Sequence[bytes], started: float) -> None:
        self._own = own
        self._packed = packed
        self._started = started

    def collect(self) -> Iterator[Metric]:
        """The merged families, in the order of their first occurrence. What was packed is parsed here."""
        families: dict[str, Metric] = {}
        values: dict[str, dict[tuple[str, frozenset[tuple[str, str]]], float]] = {}
        for family in chain(self._own.collect(), *map(_unpack, self._packed)):
            families.setdefault(family.name, family)
            known = values.setdefault(family.name, {})
            together = max if family.name in _LARGEST else min if family.name in _SMALLEST else operator.add
            for sample in family.samples:
                key = sample.name, frozenset(sample.labels.items())
                known[key] = together(known[key], sample.value) if key in known else sample.value
        for name, family in families.items():
            summed = Metric(name, family.documentation, family.type, family.unit)
            for (sample_name, labels), value in values[name].items():
                summed.add_sample(sample_name, dict(labels), self._started if sample_name == _STARTED else value)
            yield summed


def pack(collector: Collector) -> bytes:
    """What a collector collects, as bytes for `Sums`."""
    return json.dumps(
        [
            (one.name, one.documentation, one.type, one.unit, [(*sample[:3],) for sample in one.samples])
            for one in collector.collect()
        ]
    ).encode()


def _unpack(data: bytes) -> Iterator[Metric]:
    for name, documentation, kind, unit, samples in json.loads(data):
        family = Metric(name, documentation, kind, unit)
        for sample in samples:
            family.add_sample(*sample)
        yield family
