"""When to ask again, and after how long."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from numbers import Integral, Real

_FIRST_SECONDS = 0.25
_LONGEST_SECONDS = 8.0
_DOUBLINGS = 5  # from the one to the other; 1,024 are more than a float holds
# Sockets count their milliseconds in 31 bits.
_LONGEST_TIMEOUT = 2_000_000


@dataclass(frozen=True)
class Patience:
    """timeout: seconds for a request, all of its repetitions and the waits between them, above 0 and at most 2,000,000
    (23 days); retries: repetitions, 0 or more.

    Raises:
        ValueError: if one of them is no such number.
    """

    timeout: float
    retries: int

    def __post_init__(self) -> None:
        if not (isinstance(self.timeout, Real) and 0 < self.timeout <= _LONGEST_TIMEOUT):
            bounds = f"above 0, at most {_LONGEST_TIMEOUT}"
            raise ValueError(f"timeout = {self.timeout!r} should be a number of seconds {bounds}")
        require_whole("retries", self.retries, least=0)


def require_whole(name: str, value: object, *, least: int) -> None:
    """Raises ValueError, with this name, unless the value is a whole number of at least `least`."""
    if not (isinstance(value, Integral) and int(value) >= least):
        raise ValueError(f"{name} = {value!r} should be a whole number, at least {least}")


def pause(attempt: int, asked_for: float | None) -> float:
    """Seconds to wait after the attempt of that number, from 0: what the service asked for, and a random share of a
    span that doubles each time up to eight seconds, so that those refused together do not come back together."""
    longest = min(_LONGEST_SECONDS, _FIRST_SECONDS * 2.0 ** min(attempt, _DOUBLINGS))
    return (asked_for or 0.0) + random.uniform(0, longest)


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds that `Retry-After` asks for, as a number or a date; None if it is absent or neither (RFC 9110, 10.2.3).

    A date is compared with that of the answer, so that clocks need not agree; without one with `now`, in Unix time.
    """
    value = headers.get("retry-after", "").strip()
    if value.isascii() and value.isdigit():
        return float(value)
    moment = _unix_time(value)
    if moment is None:
        return None
    answered = _unix_time(headers.get("date", ""))
    return max(0.0, moment - (now if answered is None else answered))


def _unix_time(date: str) -> float | None:
    try:
        return parsedate_to_datetime(date).timestamp()
    except (ValueError, OverflowError):
        return None
