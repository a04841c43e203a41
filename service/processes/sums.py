"""The metrics of several processes as those of one."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

# Of these every process says the same, or they are no amounts: the largest stands for all.
_LARGEST = frozenset(
    {
        "fpet_build",
        "fpet_last_inference_timestamp_seconds",
        "fpet_longest_batch_seconds",
        "fpet_parallelism",
        "fpet_task_bytes",
        "fpet_tasks",
        "fpet_trial_forwards_per_second",
        "process_max_fds",
        "process_start_time_seconds",
    }
)


class Sums(Collector):
    """What processes collected; series with the same labels are one, whose value is their sum unless sums say nothing.

    So the largest of the processes' starts is told as that of all: when one began anew, they all did.
    """

    def __init__(self, parts: Sequence[Iterable[Metric]]) -> None:
        self._parts = parts

    def collect(self) -> Iterator[Metric]:
        """The families, in the order in which they come first."""
        families: dict[str, Metric] = {}
        values: dict[str, dict[tuple[str, frozenset[tuple[str, str]]], float]] = {}
        for family in (family for part in self._parts for family in part):
            families.setdefault(family.name, family)
            known = values.setdefault(family.name, {})
            for sample in family.samples:
                key = sample.name, frozenset(sample.labels.items())
                before = known.get(key)
                if before is None:
                    known[key] = sample.value
                else:
                    known[key] = max(before, sample.value) if family.name in _LARGEST else before + sample.value
        for name, family in families.items():
            summed = Metric(name, family.documentation, family.type, family.unit)
            for (sample_name, labels), value in values[name].items():
                summed.add_sample(sample_name, dict(labels), value)
            yield summed


def pack(collector: Collector) -> bytes:
    """What it collects, to be sent."""
    return json.dumps(
        [
            (one.name, one.documentation, one.type, one.unit, [(*sample[:3],) for sample in one.samples])
            for one in collector.collect()
        ]
    ).encode()


def unpack(data: bytes) -> list[Metric]:
    """What was packed."""
    families = []
    for name, documentation, kind, unit, samples in json.loads(data):
        family = Metric(name, documentation, kind, unit)
        for sample in samples:
            family.add_sample(*sample)
        families.append(family)
    return families
