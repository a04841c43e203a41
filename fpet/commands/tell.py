"""What commands say on standard error."""

from __future__ import annotations

import sys
from contextlib import suppress

from fpet.words import printable


def tell(text: object) -> None:
    """Says it on one line. Where it cannot be written it is lost, and ends nothing: a training goes on without who
    listened."""
    with suppress(OSError):
        print(f"fpet: {printable(str(text))}", file=sys.stderr)
