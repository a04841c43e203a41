"""The id of a request, in its answer and in every line of the log that is written while it is served."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

HEADER = "x-request-id"

# Room for every common kind of id, and nothing with which one could forge lines of a log.
_WELL_FORMED = re.compile(r"[A-Za-z0-9._-]{1,128}")
_current: ContextVar[str | None] = ContextVar("request_id", default=None)


def new_id(given: str | None = None) -> str:
    """The client's id, of 1 to 128 letters, digits, dots, hyphens and underscores, or else 32 random hex digits."""
    if given is not None and _WELL_FORMED.fullmatch(given):
        return given
    return f"{random.getrandbits(128):032x}"  # no secret, and the system's random numbers take a call of it each


def current_id() -> str | None:
    """The id of the request that is being served; None outside of one."""
    return _current.get()


@contextmanager
def identified(request_id: str) -> Iterator[None]:
    """What runs inside, and the tasks that it starts, serves that request."""
    token = _current.set(request_id)
    try:
        yield
    finally:
        _current.reset(token)
