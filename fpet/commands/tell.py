"""What commands say on standard error."""

from __future__ import annotations

import sys
from contextlib import suppress

from fpet.words import printable


def tell(text: object) -> None:
    """Prints one line on standard error. A line that cannot be written is lost and ends nothing: a training goes on
    when nobody reads it any more."""
    with suppress(OSError):
        print(f"fpet: {printable(str(text))}", file=sys.stderr)
