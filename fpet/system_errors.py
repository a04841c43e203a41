"""What the operating system refuses, as an error that names what it was about."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fpet.errors import FpetError


@contextmanager
def os_errors_as(error: type[FpetError], what: str) -> Iterator[None]:
    """Raises `error` in place of an OSError: `what`, a colon and the system's reason.

    what: such as `table.csv: cannot be written`.
    """
    try:
        yield
    except OSError as cause:
        raise error(f"{what}: {cause.strerror or cause}") from cause
