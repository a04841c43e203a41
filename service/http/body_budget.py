"""The memory budget for the bodies of requests that have not been answered yet."""

from __future__ import annotations

from service.errors import OverloadedError
from service.http.exchange import Exchange


class BodyBudget:
    """Counts the bytes of bodies up to a limit; used by the event loop alone. taken: bytes of all requests."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.taken = 0

    def take(self, exchange: Exchange, size: int) -> None:
        """Takes `size` bytes more for a request.

        Raises:
            OverloadedError: if that would exceed the limit; nothing is taken then.
        """
        if self.taken + size > self._limit:
            raise OverloadedError(f"the bodies of requests fill the limit of {self._limit} bytes")
        self.taken += size
        exchange.held += size

    def give_back(self, exchange: Exchange) -> None:
        """Gives back all bytes that were taken for a request."""
        self.taken -= exchange.held
        exchange.held = 0
