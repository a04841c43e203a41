"""Which share of what happens is looked at closely."""

from __future__ import annotations

import threading


class Sampler:
    """Says of every n-th that it is due, n = 1 / share, and of none while another is still being looked at."""

    def __init__(self, share: float) -> None:
        self._share = share
        self._owed = 0.0
        self._busy = False
        self._lock = threading.Lock()

    def due(self) -> bool:
        """Called once for each; if it says yes, `done` is to be called."""
        with self._lock:
            self._owed = min(self._owed + self._share, 1.0)
            if self._busy or self._owed < 1:
                return False
            self._owed, self._busy = 0.0, True
            return True

    def done(self) -> None:
        """The next may be due."""
        with self._lock:
            self._busy = False
