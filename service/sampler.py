"""Samples a share of events, of which at most one is processed at a time."""

from __future__ import annotations

import threading


class Sampler:
    """Every n-th event is due, n = 1 / share, but none while a sampled one is still being processed."""

    def __init__(self, share: float) -> None:
        self._share = share
        self._owed = 0.0
        self._busy = False
        self._lock = threading.Lock()

    def due(self) -> bool:
        """Whether to sample this event; to be called once for each. If true, `done` must be called."""
        with self._lock:
            self._owed = min(self._owed + self._share, 1.0)
            if self._busy or self._owed < 1:
                return False
            self._owed, self._busy = 0.0, True
            return True

    def done(self) -> None:
        """Ends the processing of the sampled event."""
        with self._lock:
            self._busy = False
