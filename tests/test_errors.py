"""Every kind of error has a type of its own, and what the interface's description says of it."""

from __future__ import annotations

import pytest

from service.errors import OverloadedError, ServiceError, error_kinds

ALL = error_kinds()


def test_error_types_are_unique() -> None:
    assert len(ALL) > 15
    assert len({error.error_type for error in ALL}) == len(ALL)


@pytest.mark.parametrize("error", ALL)
def test_every_kind_is_described(error: type[ServiceError]) -> None:
    assert 400 <= error.status < 600
    assert error.example
    assert (error.__doc__ or "").partition("\n\n")[0].endswith(".")
    assert error.__doc__ != ServiceError.__doc__


@pytest.mark.parametrize(("seconds", "header"), [(0.0, "1"), (0.2, "1"), (2.1, "3")])
def test_retry_after_is_whole_seconds_and_at_least_one(seconds: float, header: str) -> None:
    assert OverloadedError("full", seconds).headers == {"retry-after": header}
