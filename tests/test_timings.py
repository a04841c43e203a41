"""Seconds in service whose baseline is not known yet wait for it, and are told once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from service.model.calibration import Point
from service.model.timings import Timings


def point(batch_size: int, ratio: float) -> Point:
    return Point(batch_size, (1.0,) * 12, (ratio,) * 12)


def test_what_waited_is_told_once() -> None:
    timings = Timings()
    assert not timings.awaited
    assert timings.baseline(False, "digits", 1, 3.0) is None
    assert timings.baseline(False, "digits", 1, 2.0) is None
    assert timings.baseline(False, "other", 4, 1.0) is None
    assert timings.join(False, point(1, 2.0)) == [("digits", 5.0, pytest.approx(10.0))]
    assert timings.join(False, point(2, 2.0)) == []
    assert timings.awaited
    assert timings.join(False, point(4, 3.0)) == [("other", 1.0, pytest.approx(3.0))]
    assert not timings.awaited
    assert timings.join(False, point(8, 3.0)) == []
    assert timings.baseline(False, "digits", 1, 5.0) == pytest.approx(10.0)


def test_folded_forwards_rest_on_those_of_others_until_they_are_timed() -> None:
    timings = Timings()
    assert timings.baseline(True, "digits", 2, 1.0) is None
    assert timings.join(False, point(2, 3.0)) == [("digits", 1.0, pytest.approx(3.0))]
    timings.join(True, point(1, 2.0))
    assert timings.baseline(True, "digits", 1, 1.0) == pytest.approx(2.0)
    assert timings.baseline(True, "digits", 2, 1.0) == pytest.approx(3.0)  # of so many none is timed that is folded
    assert timings.baseline(False, "digits", 1, 1.0) == pytest.approx(3.0)


def test_what_waited_is_told_by_the_timings_of_its_own_way() -> None:
    timings = Timings()
    assert timings.baseline(False, "mixed", 2, 1.0) is None
    assert timings.baseline(True, "folded", 2, 1.0) is None
    assert timings.join(True, point(2, 5.0)) == [("folded", 1.0, pytest.approx(5.0))]
    assert timings.join(False, point(2, 3.0)) == [("mixed", 1.0, pytest.approx(3.0))]


def test_the_timings_of_each_way_are_kept_apart() -> None:
    timings = Timings()
    assert timings.calibration(True).points == ()
    timings.join(False, point(1, 3.0))
    assert timings.calibration(True).points == timings.calibration(False).points == (point(1, 3.0),)
    timings.join(True, point(2, 2.0))
    assert timings.calibration(True).points == (point(2, 2.0),)
    assert timings.calibration(False).points == (point(1, 3.0),)


def test_nothing_waits_once_there_is_no_hope() -> None:
    timings = Timings()
    timings.baseline(False, "digits", 1, 3.0)
    timings.give_up()
    assert not timings.awaited
    assert timings.baseline(False, "digits", 1, 3.0) is None
    assert not timings.awaited
    assert timings.join(False, point(1, 2.0)) == []


def attempt(timings: Timings, folded: bool, batch_size: int) -> bool:
    with timings.attempt(folded, batch_size) as first:
        return first


def test_the_first_to_time_a_size_is_told_so() -> None:
    timings = Timings()
    asked = [(False, 1), (False, 1), (False, 2), (True, 1), (True, 1)]
    assert [attempt(timings, *one) for one in asked] == [True, False, True, True, False]


def test_a_timing_that_failed_is_tried_again() -> None:
    timings = Timings()

    def fail(then: Callable[[], object]) -> None:
        with timings.attempt(False, 1):
            then()
            raise MemoryError

    def fail_as_another() -> None:
        with pytest.raises(MemoryError):
            fail(lambda: None)
        assert not attempt(timings, False, 1)  # the first goes on

    with pytest.raises(MemoryError):
        fail(fail_as_another)
    assert attempt(timings, False, 1)
