"""The slots of a bounded queue, reserved before the items that will take them exist."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass


@dataclass(eq=False)
class Reservation:
    """A request's slots in the queue: one is released whenever an item enters a batch, the rest when the request ends.

    kinds: of its items.
    """

    slots: int
    kinds: frozenset[Hashable] = frozenset()


class QueueSlots:
    """`number` slots shared by all kinds, and `spare` further slots that only kinds that hold none can reserve.

    So no kind is refused because another took all slots. taken: slots that are reserved.
    """

    def __init__(self, number: int, spare: int) -> None:
        self.number = number
        self._spare = spare
        self.taken = 0
        self._held: Counter[Hashable] = Counter()

    def limit(self, reservation: Reservation) -> int:
        """The number of slots, taken ones included, up to which this reservation can grow the total.

        The spare ones count if no other reservation holds slots of one of its kinds.
        """
        others = any(self._held[kind] > reservation.slots for kind in reservation.kinds)
        return self.number if others or not reservation.kinds else self.number + self._spare

    def resize(self, reservation: Reservation, slots: int) -> None:
        """Sets the number of slots that a reservation holds, without a check of the limit."""
        self.taken += slots - reservation.slots
        for kind in reservation.kinds:
            self._held[kind] += slots - reservation.slots
            if not self._held[kind]:
                del self._held[kind]
        reservation.slots = slots
