"""Series exist from the start, names that clients invent make no new ones, and savings are what the counters say."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator

import pytest
from counted import savings_of
from prometheus_client import Metric
from prometheus_client.registry import Collector

from service.metrics import MAX_TASK_LABELS, Metrics, TaskCost
from service.metrics_snapshot import MetricsSnapshot
from service.savings import savings
from service.schemas import ShadowSavings, TaskSavings
from service.statistics import Counted, Statistics, Total
from service.task_labels import OTHER, TaskLabels


def metrics() -> Metrics:
    made = Metrics([200, 429], ["overloaded"])
    made.add_task("digits", 1)
    return made


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"fpet_{name}", labels)


def test_every_series_starts_at_zero() -> None:
    made = metrics()
    assert value(made, "requests_total", task="digits", code="429") == 0
    assert value(made, "failures_total", reason="overloaded") == 0
    assert value(made, "forward_seconds_total", task="digits", tokens="reduced") == 0
    assert value(made, "forward_baseline_seconds_total", task="digits", source="calibrated") == 0
    assert value(made, "requests_total", task=OTHER, code="200") == 0
    assert [value(made, "task_loads_total", result=result) for result in ("loaded", "failed", "refused")] == [0] * 3
    assert [value(made, "batches_total", path=path) for path in ("mixed", "captured", "folded")] == [0] * 3
    assert value(made, "queue_size") == 0


def test_unknown_names_share_one_label() -> None:
    made = metrics()
    for name in ("digits", "a", "b"):
        made.count_request([name], 200, 0.1)
    assert value(made, "requests_total", task="digits", code="200") == 1
    assert value(made, "requests_total", task=OTHER, code="200") == 2
    assert value(made, "requests_total", task="a", code="200") is None
    assert value(made, "request_duration_seconds_count", code="200") == 3


def test_a_request_counts_once_whatever_it_names() -> None:
    made = metrics()
    made.count_request(["digits", "a", "digits", "b"], 429, 0.1)
    assert value(made, "requests_total", task="digits", code="429") == 1
    assert value(made, "requests_total", task=OTHER, code="429") == 1
    assert value(made, "request_duration_seconds_count", code="429") == 1
    assert value(made, "request_duration_seconds_count", code="200") == 0


def test_task_labels_are_capped() -> None:
    made = metrics()
    for i in range(2 * MAX_TASK_LABELS):
        made.add_task(f"task-{i}", i)
    labels = {made.tasks.of(f"task-{i}") for i in range(2 * MAX_TASK_LABELS)}
    assert len(labels | {"digits"}) == MAX_TASK_LABELS + 1
    assert OTHER in labels
    assert set(series(made)) == labels | {"digits"}  # nor have the others a size


def test_a_task_that_left_keeps_its_counts_until_another_needs_its_label() -> None:
    made = Metrics([200], [])
    statistics = Statistics(made)
    for i in range(MAX_TASK_LABELS):
        made.add_task(f"task-{i}", 10 + i)
        made.count_batch([TaskCost(f"task-{i}", True, 1, 20, 10, seconds=1.0, baseline_seconds=2.0)])
        made.count_request([f"task-{i}"], 200, 0.1)
        with statistics.counted([f"task-{i}"]):
            statistics.count_stages(f"task-{i}", 1, decode=0.1, queue=0.1, inference=0.1)
            statistics.count_batch([f"task-{i}"])
    before = series(made)

    for name in ("task-7", "task-3", "task-5"):
        made.remove_task(name)
    made.add_task("task-7", 17)  # comes back before its label was needed
    assert series(made) == {**before, "task-3": before["task-3"] - 1, "task-5": before["task-5"] - 1}  # their sizes
    assert value(made, "requests_total", task="task-3", code="200") == 1

    made.add_task("new", 1)
    assert (made.tasks.of("task-3"), made.tasks.of("task-5")) == (OTHER, "task-5")
    assert not any(labels.get("task") == "task-3" for labels in all_labels(made))
    assert value(made, "requests_total", task="new", code="200") == 0
    assert value(made, "task_bytes", task="new") == 1

    for i in range(10):  # of those that serve none gives way
        made.add_task(f"more-{i}", 1)
    assert [made.tasks.of(name) for name in ("task-5", "more-0", "more-1", "task-7")] == [
        OTHER,
        "more-0",
        OTHER,
        "task-7",
    ]


def test_each_stage_and_each_outcome_has_its_own_time() -> None:
    made = metrics()
    statistics = Statistics(made)
    with statistics.counted(["digits"]):
        statistics.count_stages("digits", 3, decode=1.0, queue=2.0, inference=4.0)
    for error in (asyncio.CancelledError, ValueError):
        with pytest.raises(error), statistics.counted(["digits", "a"]):
            raise error
    statistics.count_batch(["digits", "digits", "a"])
    counted = Counted(MetricsSnapshot(made.registry))
    stages = [counted.stage("digits", stage) for stage in ("decode", "queue", "inference")]
    assert stages == [Total(1, 1.0), Total(1, 2.0), Total(1, 4.0)]
    assert (counted.images("digits"), counted.batches("digits"), counted.batches(OTHER)) == (3, 1, 1)
    success, failure = (counted.requests("digits", result) for result in ("success", "failure"))
    assert (success.count, failure.count, counted.requests(OTHER, "failure").count) == (1, 2, 2)
    assert success.seconds > 0
    assert failure.seconds == pytest.approx(counted.requests(OTHER, "failure").seconds)
    assert counted.last("digits") > 0 == counted.last(OTHER)
    assert (statistics.has("digits"), statistics.has("a")) == (True, False)


def all_labels(metrics: Metrics) -> list[dict[str, str]]:
    return [sample.labels for metric in metrics.registry.collect() for sample in metric.samples]


def series(metrics: Metrics) -> Counter[str]:
    """How many series there are of each task."""
    return Counter(labels["task"] for labels in all_labels(metrics) if "task" in labels)


def test_savings_are_those_of_reduced_forwards() -> None:
    made = metrics()
    made.count_batch([TaskCost("digits", True, 2, 20, 10, seconds=2.0, baseline_seconds=3.0)])
    made.count_batch([TaskCost("digits", True, 1, 10, 5, seconds=1.0, baseline_seconds=1.5)])
    made.count_batch([TaskCost("digits", False, 1, 10, 10, seconds=7.0, baseline_seconds=None)])
    assert savings_of(made) == [
        TaskSavings(
            task="digits",
            images=3,
            tokens_in=30,
            tokens_out=15,
            forward_seconds=3.0,
            calibrated_seconds=3.0,
            baseline_seconds=4.5,
            speedup=1.5,
            shadow=None,
        )
    ]
    assert value(made, "forward_seconds_total", task="digits", tokens="full") == 7.0
    assert value(made, "batch_size_sum") == 4
    assert value(made, "batch_tasks_sum") == 3


def test_without_a_baseline_no_speedup_is_told() -> None:
    made = metrics()
    made.count_batch([TaskCost("digits", True, 2, 20, 10, seconds=2.0, baseline_seconds=None)])
    assert [(saving.baseline_seconds, saving.speedup) for saving in savings_of(made)] == [(0.0, None)]


def test_seconds_without_a_baseline_are_no_part_of_the_speedup() -> None:
    """A label may have had a task before whose baseline nobody knows."""
    made = metrics()
    made.count_batch([TaskCost("digits", True, 2, 20, 10, seconds=6.0, baseline_seconds=None)])
    made.count_batch([TaskCost("digits", True, 2, 20, 10, seconds=2.0, baseline_seconds=3.0)])
    (saving,) = savings_of(made)
    assert (saving.forward_seconds, saving.calibrated_seconds, saving.speedup) == (8.0, 2.0, 1.5)
    made.count_baseline("digits", 6.0, 15.0)  # is known at last
    (saving,) = savings_of(made)
    assert (saving.forward_seconds, saving.calibrated_seconds, saving.speedup) == (8.0, 8.0, 2.25)


def test_a_batch_takes_the_time_of_all_its_tasks() -> None:
    made = metrics()
    made.count_batch([TaskCost(task, True, 1, 10, 5, seconds=1.5, baseline_seconds=None) for task in ("digits", "a")])
    assert value(made, "forward_duration_seconds_sum", tokens="reduced") == 3.0
    assert value(made, "forward_duration_seconds_count", tokens="reduced") == 1


def test_shadows_tell_time_and_agreement_by_task() -> None:
    made = metrics()
    made.add_task("plain", 1)
    made.count_shadow(["digits", "digits", "plain"], [True, False, True], reduced_seconds=3.0, full_seconds=6.0)
    shadows = {saving.task: saving.shadow for saving in savings_of(made)}
    assert shadows["digits"] == ShadowSavings(
        images=2, agreement=0.5, reduced_seconds=2.0, full_seconds=4.0, speedup=2.0
    )
    assert shadows["plain"] == ShadowSavings(
        images=1, agreement=1.0, reduced_seconds=1.0, full_seconds=2.0, speedup=2.0
    )


def test_a_shadow_is_told_once_all_of_it_is_counted() -> None:
    """A reading may fall between its counters."""
    made = metrics()
    made.count_shadow(["digits"], [True], reduced_seconds=0.0, full_seconds=0.0)
    assert [saving.shadow for saving in savings_of(made)] == [None]
    for reduced, full in ((1.0, 0.0), (0.0, 1.0)):
        made = metrics()
        made.count_shadow(["digits"], [True], reduced_seconds=reduced, full_seconds=full)
        assert [saving.shadow for saving in savings_of(made)] == [None]


class CountedMeanwhile(Collector):
    """Counters of which so many are read before a batch and its shadow are counted, and the others after that."""

    def __init__(self, metrics: Metrics, before: int) -> None:
        self.metrics, self.before = metrics, before

    def collect(self) -> Iterator[Metric]:
        for read, metric in enumerate(self.metrics.registry.collect(), start=1):
            yield metric
            if read == self.before:
                self.metrics.count_batch([TaskCost("digits", True, 2, 20, 10, seconds=2.0, baseline_seconds=3.0)])
                self.metrics.count_shadow(["digits"], [True], reduced_seconds=1.0, full_seconds=2.0)


def test_savings_are_told_whatever_is_counted_while_they_are_read() -> None:
    found = []
    for before in range(1, len(list(metrics().registry.collect()))):
        made = metrics()
        (saving,) = savings(MetricsSnapshot(CountedMeanwhile(made, before)), ["digits"])
        found.append((saving.speedup, saving.shadow and saving.shadow.speedup))
    assert found[0] == (1.5, 2.0)
    assert found[-1] == (None, None)
    assert set(found) <= {(speedup, shadow) for speedup in (1.5, None) for shadow in (2.0, None)}


def test_savings_of_unknown_names_are_told_once_there_are_any() -> None:
    made = metrics()
    assert [saving.task for saving in savings_of(made)] == ["digits"]
    made.count_batch([TaskCost("a", True, 2, 20, 10, seconds=2.0, baseline_seconds=3.0)])
    assert {saving.task: saving.images for saving in savings_of(made)} == {"digits": 0, OTHER: 2}


def test_an_uncounted_series_reads_as_zero() -> None:
    assert MetricsSnapshot(metrics().registry).value("images_total", task="a", tokens="reduced") == 0


@pytest.mark.parametrize("name", ["image_total", "images", "images_count", "queue_size_total", "batch_size"])
def test_a_series_of_no_metric_is_an_error(name: str) -> None:
    with pytest.raises(KeyError, match=f"fpet_{name}"):
        MetricsSnapshot(metrics().registry).value(name)


def test_two_services_in_one_process_do_not_share_counters() -> None:
    first, second = metrics(), metrics()
    first.count_request(["digits"], 200, 0.1)
    assert value(second, "requests_total", task="digits", code="200") == 0


def test_a_task_without_a_label_of_its_own_leaves_none_behind() -> None:
    labels = TaskLabels(most=1)
    assert [labels.add("first"), labels.add("second")] == [True, False]
    labels.leave("second")
    labels.leave("first")
    assert labels.add("third")
    assert labels.all() == sorted([OTHER, "third"])
