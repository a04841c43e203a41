"""What is closed when nobody uses it any more."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock


@dataclass(eq=False)
class Closing:
    """Closes something once, when that was asked for and the last of its users is done; threads may share it.

    A pool of httpx that is closed while one of its threads connects closes all connections but that one, which is then
    lost.
    """

    close: Callable[[], None]
    _users: int = field(default=0, init=False)
    _asked: bool = field(default=False, init=False)
    _lock: Lock = field(default_factory=Lock, init=False)

    @contextmanager
    def use(self) -> Iterator[None]:
        """While this lasts it stays open.

        Raises:
            RuntimeError: if it was asked to close before.
        """
        with self._lock:
            if self._asked:
                raise RuntimeError("the client is closed")
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                last = self._asked and not self._users
            if last:
                self.close()

    def ask(self) -> None:
        """Closes it, or has its last user do so."""
        with self._lock:
            now = not self._asked and not self._users
            self._asked = True
        if now:
            self.close()
