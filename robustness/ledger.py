"""What came of the requests of a soak: each is answered, refused for a reason that is due, or failed."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Ledger:
    """Counts from several threads; failures: what has no explanation, each with what was seen."""

    counts: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, what: str) -> None:
        """One more of these."""
        with self._lock:
            self.counts[what] += 1

    def fail(self, what: str) -> None:
        """A failure."""
        with self._lock:
            self.failures.append(what)
