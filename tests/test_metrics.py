"""Series exist from the start, names that clients invent make no new ones, and savings are what the counters say."""

from __future__ import annotations

from service.metrics import MAX_TASK_LABELS, OTHER, Forward, Metrics
from service.savings import Saving, Shadow, savings


def metrics() -> Metrics:
    made = Metrics([200, 429], ["overloaded"])
    made.add_task("digits")
    return made


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"fpet_{name}", labels)


def test_every_series_starts_at_zero() -> None:
    made = metrics()
    assert value(made, "requests_total", task="digits", code="429") == 0
    assert value(made, "failures_total", reason="overloaded") == 0
    assert value(made, "forward_seconds_total", task="digits", tokens="reduced") == 0
    assert value(made, "forward_baseline_seconds_total", task="digits", source="calibrated") == 0
    assert value(made, "task_loads_total", result="failed") == 0
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
        made.add_task(f"task-{i}")
    labels = {made.label(f"task-{i}") for i in range(2 * MAX_TASK_LABELS)}
    assert len(labels | {"digits"}) == MAX_TASK_LABELS + 1
    assert OTHER in labels


def test_savings_are_those_of_reduced_forwards() -> None:
    made = metrics()
    made.count_batch([Forward("digits", True, 2, 20, 10, seconds=2.0, baseline_seconds=3.0)])
    made.count_batch([Forward("digits", True, 1, 10, 5, seconds=1.0, baseline_seconds=1.5)])
    made.count_batch([Forward("digits", False, 1, 10, 10, seconds=7.0, baseline_seconds=None)])
    assert Saving("digits", 3, 30, 15, 3.0, 4.5, Shadow(0, 0, 0.0, 0.0)) in savings(made)
    assert value(made, "forward_seconds_total", task="digits", tokens="full") == 7.0
    assert value(made, "batch_size_sum") == 4
    assert value(made, "batch_tasks_sum") == 3


def test_shadows_tell_time_and_agreement_by_task() -> None:
    made = metrics()
    made.add_task("plain")
    made.count_shadow(["digits", "digits", "plain"], [True, False, True], reduced_seconds=3.0, full_seconds=6.0)
    shadows = {saving.task: saving.shadow for saving in savings(made)}
    assert shadows["digits"] == Shadow(images=2, agreeing=1, reduced_seconds=2.0, full_seconds=4.0)
    assert shadows["plain"] == Shadow(images=1, agreeing=1, reduced_seconds=1.0, full_seconds=2.0)


def test_savings_of_unknown_names_are_told_once_there_are_any() -> None:
    made = metrics()
    assert [saving.task for saving in savings(made)] == ["digits"]
    made.count_batch([Forward("a", True, 2, 20, 10, seconds=2.0, baseline_seconds=3.0)])
    assert {saving.task: saving.images for saving in savings(made)} == {"digits": 0, OTHER: 2}


def test_two_services_in_one_process_do_not_share_counters() -> None:
    first, second = metrics(), metrics()
    first.count_request(["digits"], 200, 0.1)
    assert value(second, "requests_total", task="digits", code="200") == 0
