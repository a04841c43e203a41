"""Seconds in service whose baseline is not known yet wait for it, and are told once."""

from __future__ import annotations

import pytest

from service.calibration import Point
from service.timings import Timings


def point(batch_size: int, ratio: float) -> Point:
    return Point(batch_size, (1.0,) * 12, (ratio,) * 12)


def test_what_waited_is_told_once() -> None:
    timings = Timings()
    assert timings.baseline(False, "digits", 1, 3.0) is None
    assert timings.baseline(False, "digits", 1, 2.0) is None
    assert timings.baseline(False, "other", 4, 1.0) is None
    assert timings.join(False, point(1, 2.0)) == [("digits", pytest.approx(10.0))]
    assert timings.join(False, point(2, 2.0)) == []
    assert timings.join(False, point(4, 3.0)) == [("other", pytest.approx(3.0))]
    assert timings.join(False, point(8, 3.0)) == []
    assert timings.baseline(False, "digits", 1, 5.0) == pytest.approx(10.0)


def test_folded_forwards_rest_on_those_of_others_until_they_are_timed() -> None:
    timings = Timings()
    assert timings.baseline(True, "digits", 2, 1.0) is None
    assert timings.join(False, point(2, 3.0)) == [("digits", pytest.approx(3.0))]
    timings.join(True, point(1, 2.0))
    assert timings.baseline(True, "digits", 1, 1.0) == pytest.approx(2.0)
    assert timings.baseline(True, "digits", 2, 1.0) == pytest.approx(3.0)  # of so many none is timed that is folded
    assert timings.baseline(False, "digits", 1, 1.0) == pytest.approx(3.0)


def test_the_first_to_time_a_size_is_told_so() -> None:
    timings = Timings()
    asked = [(False, 1), (False, 1), (False, 2), (True, 1), (True, 1)]
    assert [timings.start(*one) for one in asked] == [True, False, True, True, False]
