"""The baseline is measured, side by side, at every batch size."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from changing import IMAGE, put, task_file
from serving import ADMIN, KEY, Files, serving, small_settings

from fpet.hardware.paired_timing import alternate
from fpet.header import Method
from service.model.calibration import Calibration, Point, measure_point
from service.model.sizes import doublings


def point(batch_size: int, *ratios: float) -> Point:
    return Point(batch_size, (1.0,) * len(ratios), ratios)


# So many pairs each that none needs those of others.
THREE = Calibration((point(1, *[0.5] * 12), point(4, *[2.0] * 12), point(8, *[1.0] * 12)))


@pytest.mark.parametrize(("largest", "numbers"), [(1, [1]), (2, [1, 2]), (6, [1, 2, 4, 6]), (16, [1, 2, 4, 8, 16])])
def test_numbers_double_up_to_the_largest(largest: int, numbers: list[int]) -> None:
    assert doublings(largest) == numbers


@pytest.mark.parametrize(
    ("batch_size", "ratio"), [(1, 0.5), (2, 1.0), (4, 2.0), (6, 1.5), (8, 1.0), (100, 1.0)], ids=str
)
def test_ratios_are_interpolated_between_the_sizes_measured(batch_size: int, ratio: float) -> None:
    assert THREE.ratio_at(batch_size) == pytest.approx(ratio)


def test_of_a_point_the_median_pair_counts() -> None:
    # The machine was busy with other work during the first pair, and during half of the last.
    calibration = Calibration((Point(2, (5.0, 1.0, 1.0), (6.0, 1.2, 9.0)),))
    assert calibration.ratio_at(2) == pytest.approx(1.2)
    assert calibration.points[0].medians == (1.0, 6.0)


def test_points_of_few_pairs_are_read_with_those_beside_them() -> None:
    many, few, fewest = point(1, *[1.0] * 12), point(2, *[1.2] * 7), point(4, 3.0, 1.3)
    assert Calibration((many,)).joined_by(fewest).joined_by(few).ratios == (1.0, 1.2, 1.2)
    # The middle one takes five of the twelve and both of the others; the last one the seven, and three of the twelve.
    assert Calibration((few, fewest)).ratios == (1.2, 1.2)
    assert Calibration((fewest,)).ratios == (pytest.approx(2.15),)


def test_points_further_off_are_read_as_well_if_those_beside_are_few() -> None:
    few, many = point(2, 1.2), point(4, *[2.0] * 12)
    assert Calibration((few, many)).ratios == (2.0, 2.0)
    assert Calibration((point(1, 1.0), few, many)).ratios == (2.0, 2.0, 2.0)
    assert Calibration((point(1, *[2.0] * 12), few, point(4, 1.0))).ratios == (2.0, 2.0, 2.0)


def test_points_of_many_pairs_are_read_whole_and_alone() -> None:
    many, more = point(1, *[1.0] * 12, *[2.0] * 13), point(2, *[3.0] * 40)
    assert Calibration((many, more)).ratios == (2.0, 3.0)


def test_the_largest_size_is_not_beside_the_smallest() -> None:
    fewest, few, many = point(1, 1.0), point(2, *[2.0] * 11), point(4, *[0.5] * 12)
    assert Calibration((fewest, few, many)).ratios[0] == 2.0


def test_forwards_take_turns() -> None:
    order: list[bool] = []
    times = {True: iter([1.0, 9.0, 2.0]), False: iter([3.0, 4.0, 50.0])}

    def seconds(reduced: bool) -> float:
        order.append(reduced)
        return next(times[reduced])

    timed = measure_point(4, 3, seconds)
    assert order == [True, False, False, True, True, False]
    assert timed == Point(4, reduced=(1.0, 9.0, 2.0), full=(3.0, 4.0, 50.0))
    assert timed.ratios == pytest.approx([3, 4 / 9, 25])


def test_slow_forwards_are_timed_less_often() -> None:
    left = {True: iter([1.0, 2.0]), False: iter([3.0, 4.0])}  # and no third ones
    timed = measure_point(4, 9, lambda reduced: next(left[reduced]), longest=10.0)
    assert timed == Point(4, reduced=(1.0, 2.0), full=(3.0, 4.0))
    times = alternate(9, lambda reduced: 1.0 if reduced else 3.0, longest=7.0)
    assert times == ([1.0, 1.0], [3.0, 3.0])
    assert alternate(9, lambda _: 5.0, longest=0.1) == ([5.0], [5.0])  # but once at least


def test_time_that_others_have_the_processor_for_passes_too() -> None:
    many = 1_000_000  # more than any machine does in that time
    own, others = alternate(many, lambda _: 1e-9, longest=0.02)  # as if waited for, save for a nanosecond
    assert 1 <= len(own) == len(others) < many


def test_fast_forwards_are_timed_more_often() -> None:
    assert alternate(2, lambda _: 0.5, shortest=3.0) == ([0.5] * 3, [0.5] * 3)
    assert alternate(2, lambda _: 0.5, shortest=1.0) == ([0.5] * 2, [0.5] * 2)  # as often as asked for at least


def test_a_service_that_is_ready_has_timed_all_sizes(small_files: Files) -> None:
    with serving(small_settings(small_files, calibration_repeats=10)) as service:
        task = service.runtime.catalog.entries.loaded("digits")
        points = task.family.timings.calibration(False).points
        assert [point.batch_size for point in points] == [1, 2, 4]
        (told,) = (one for one in service.client.get("/v1/savings").json()["calibration"] if one["task"] == "digits")
        medians = [point.medians for point in points]
        milliseconds = [(round(1000 * reduced, 3), round(1000 * full, 3)) for reduced, full in medians]
        assert [(one["reduced_ms"], one["full_ms"]) for one in told["points"]] == milliseconds


def test_a_family_that_is_gone_before_it_is_timed_has_its_baseline(files: Files, tmp_path: Path) -> None:
    """Timing the first takes longer than the others are there."""
    names = [f"canary{i}" for i in range(3)]
    with serving(small_settings(files, admin_key=KEY, calibration_repeats=1)) as service:
        for i, name in enumerate(names):
            put(service, name, task_file(tmp_path, name, adapter=Method("lora", {"dim": 3 + i})))
            assert service.classify(IMAGE, name).status_code == 200
            assert service.client.delete(f"/v1/tasks/{name}", headers=ADMIN).status_code == 204
        for name in names:
            labels = {"task": name, "source": "calibrated"}
            service.until(lambda of=labels: service.metric("forward_baseline_seconds_total", **of) > 0)


def test_a_family_is_timed_for_long_enough(small_files: Files) -> None:
    with serving(small_settings(small_files)) as service:
        started = time.perf_counter()
        service.runtime.engine.calibrate(service.runtime.catalog.entries.loaded("digits"), 3, repeats=1)
        assert time.perf_counter() - started >= 0.25  # one forward each way takes a hundredth of that


def test_nothing_waits_for_timings_that_will_never_be(small_files: Files) -> None:
    with serving(small_settings(small_files, calibration_repeats=0)) as service:
        assert service.classify(IMAGE).status_code == 200
        assert service.metric("images_total", task="digits", tokens="reduced") == 1
        assert not service.runtime.catalog.entries.loaded("digits").family.timings.awaited
