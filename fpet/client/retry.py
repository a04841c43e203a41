"""When to ask again, and after how long."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

_FIRST_SECONDS = 0.25
_LONGEST_SECONDS = 8.0


@dataclass(frozen=True)
class Patience:
    """timeout: seconds for a request, all of its repetitions and the waits between them; retries: repetitions.

    No wait for the network is longer than what is left of the time. An answer that trickles in is not cut off by it.

    Raises:
        ValueError: if a number is out of its range.
    """

    timeout: float
    retries: int

    def __post_init__(self) -> None:
        if not 0 < self.timeout < math.inf:
            raise ValueError(f"timeout = {self.timeout} should be a number of seconds above 0")
        if self.retries < 0:
            raise ValueError(f"retries = {self.retries} should not be below 0")


def pause(attempt: int, asked_for: float | None) -> float:
    """Seconds to wait after the attempt of that number, from 0: what the service asked for, and a random share of a
    span that doubles each time up to eight seconds, so that those refused together do not come back together."""
    longest = min(_LONGEST_SECONDS, _FIRST_SECONDS * 2.0**attempt)
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
