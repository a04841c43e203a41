"""The memory that bodies of requests may take while they wait for their answers."""

from __future__ import annotations

from service.errors import OverloadedError

_RETRY_AFTER = 1.0


class Room:
    """Counts bytes up to a limit; used by the event loop alone."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.taken = 0

    def take(self, size: int) -> None:
        """Takes so many bytes more.

        Raises:
            OverloadedError: if there is no room for them, and then none is taken.
        """
        if self.taken + size > self._limit:
            raise OverloadedError(f"the bodies of requests fill the limit of {self._limit} bytes", _RETRY_AFTER)
        self.taken += size

    def give_back(self, size: int) -> None:
        """Gives back bytes that were taken."""
        self.taken -= size
