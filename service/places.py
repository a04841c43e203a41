"""The places of a queue: how many there are, and who holds them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass


@dataclass(eq=False)
class Ticket:
    """Places in the queue; one is given back whenever an item enters a batch, the rest when the request ends.

    kinds: of its items.
    """

    places: int
    kinds: frozenset[Hashable] = frozenset()


class Places:
    """So many for all together, and `spare` ones more for kinds that hold none: so nobody is refused because another
    kind took all."""

    def __init__(self, number: int, spare: int) -> None:
        self.number = number
        self._spare = spare
        self.taken = 0
        self._held: Counter[Hashable] = Counter()

    def open_to(self, ticket: Ticket) -> int:
        """How many places there are, taken ones and its own too, if the ticket asks."""
        others = any(self._held[kind] > ticket.places for kind in ticket.kinds)
        return self.number if others or not ticket.kinds else self.number + self._spare

    def change(self, ticket: Ticket, places: int) -> None:
        """Gives the ticket so many places in all."""
        self.taken += places - ticket.places
        for kind in ticket.kinds:
            self._held[kind] += places - ticket.places
            if not self._held[kind]:
                del self._held[kind]
        ticket.places = places
