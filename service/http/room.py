"""The memory that bodies of requests may take while they wait for their answers."""

from __future__ import annotations

from service.errors import OverloadedError
from service.http.exchange import Exchange


class Room:
    """Counts bytes up to a limit; used by the event loop alone. taken: by all requests."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.taken = 0

    def take(self, exchange: Exchange, size: int) -> None:
        """Takes so many bytes more for a request.

        Raises:
            OverloadedError: if there is no room for them, and then none is taken.
        """
        if self.taken + size > self._limit:
            raise OverloadedError(f"the bodies of requests fill the limit of {self._limit} bytes")
        self.taken += size
        exchange.held += size

    def give_back(self, exchange: Exchange) -> None:
        """Gives back all that was taken for a request."""
        self.taken -= exchange.held
        exchange.held = 0
