"""The tree of errors is what its docstring draws."""

from __future__ import annotations

import re

import pytest

from service import errors
from service.errors import OverloadedError, ServiceError

ALL = ServiceError.__subclasses__()


def test_the_docstring_draws_every_error_with_its_status() -> None:
    drawn = re.findall(r"^[├└]── (\w+) +(\d{3})\b", errors.__doc__ or "", re.MULTILINE)
    assert drawn == [(error.__name__, str(error.status)) for error in ALL]


def test_error_types_are_unique() -> None:
    assert len({error.error_type for error in ALL}) == len(ALL)


@pytest.mark.parametrize(("seconds", "header"), [(0.0, "1"), (0.2, "1"), (2.1, "3")])
def test_retry_after_is_whole_seconds_and_at_least_one(seconds: float, header: str) -> None:
    assert OverloadedError("full", seconds).headers == {"retry-after": header}
