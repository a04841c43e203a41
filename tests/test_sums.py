"""Series of several processes are one: amounts are added, of all else the largest stands for all."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from serving import Serving

from service.metrics_snapshot import MetricsSnapshot
from service.processes.sums import Sums, pack

# Gauges that are amounts of a process, so that those of all are their sum.
AMOUNTS = {
    "fpet_processes",
    "fpet_queue_limit",
    "fpet_queue_size",
    "fpet_received_bytes",
    "fpet_resident_bytes",
    "process_cpu_seconds",
    "process_resident_memory_bytes",
    "process_virtual_memory_bytes",
}


NOTHING = CollectorRegistry()


STARTED = 1_700_000_000.0


class Frozen(Collector):
    """What a collector collects at one moment."""

    def __init__(self, collector: Collector) -> None:
        self._families = list(collector.collect())

    def collect(self) -> list[Metric]:
        return self._families


def collected(task: str, count: int) -> Collector:
    """What a process collects that counted so often, for a task."""
    registry = CollectorRegistry()
    Counter("fpet_images", "Images.", ["task"], registry=registry).labels(task).inc(count)
    seconds = Histogram("fpet_seconds", "Seconds.", registry=registry, buckets=(1, 2))
    for _ in range(count):
        seconds.observe(1.5)
    Gauge("fpet_queue_size", "Images.", registry=registry).set(count)
    Gauge("fpet_longest_batch_seconds", "Seconds.", registry=registry).set(count)
    Gauge("fpet_queue_fill", "Share.", registry=registry).set(count / 4)
    Gauge("fpet_ready", "1 or 0.", registry=registry).set(count > 1)
    return registry


def test_amounts_are_added_and_of_the_rest_the_largest_or_the_smallest_stands_for_all() -> None:
    others = [collected("digits", 3), collected("plain", 1)]
    snapshot = MetricsSnapshot(Sums(collected("digits", 2), [pack(other) for other in others], STARTED))
    assert snapshot.value("images_total", task="digits") == 5
    assert snapshot.value("images_total", task="plain") == 1
    assert snapshot.value("seconds_bucket", le="1.0") == 0
    assert snapshot.value("seconds_bucket", le="2.0") == snapshot.value("seconds_count") == 6
    assert snapshot.value("seconds_sum") == 9
    assert snapshot.value("queue_size") == 6
    assert snapshot.value("longest_batch_seconds") == 3
    assert snapshot.value("queue_fill") == 0.75
    assert snapshot.value("ready") == 0


def started_of(collector: Collector) -> float:
    (value,) = (
        sample.value
        for family in collector.collect()
        for sample in family.samples
        if sample.name == "process_start_time_seconds"
    )
    return value


def test_what_one_collects_is_told_as_it_is(service: Serving) -> None:
    once = Frozen(service.runtime.metrics.registry)
    own = started_of(once)
    assert (
        generate_latest(Sums(once, [], own))
        == generate_latest(Sums(NOTHING, [pack(once)], own))
        == generate_latest(once)
    )
    assert len(generate_latest(once)) > 10_000


def test_the_start_is_that_of_the_service_however_many_processes_are_there(service: Serving) -> None:
    once = Frozen(service.runtime.metrics.registry)
    for packed in ([], [pack(once)], [pack(once)] * 3):
        assert started_of(Sums(once, packed, STARTED)) == STARTED


def test_of_every_series_of_the_service_it_is_known_what_it_is(service: Serving) -> None:
    once = Frozen(service.runtime.metrics.registry)
    for one, both in zip(once.collect(), Sums(once, [pack(once)], started_of(once)).collect(), strict=True):
        assert (one.name, one.type, one.documentation) == (both.name, both.type, both.documentation)
        added = one.type in {"counter", "histogram"} or one.name in AMOUNTS
        for sample, sum_ in zip(one.samples, both.samples, strict=True):
            assert (sample.name, sample.labels) == (sum_.name, sum_.labels)
            assert sum_.value == (2 * sample.value if added else sample.value), sample
