"""A queue that is fair: over groups by start-time fair queueing, and over the kinds within a group by rotation."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Hashable
from itertools import islice
from typing import Generic, NamedTuple, TypeVar

Group = TypeVar("Group", bound=Hashable)
Kind = TypeVar("Kind", bound=Hashable)
Entry = TypeVar("Entry", bound=Hashable)


class Taken(NamedTuple, Generic[Group, Entry]):
    """A batch: its group, its entries in the order of their turns, and what is to be called once with its cost.

    The cost may be the seconds for which the batch occupied the server.
    """

    group: Group
    entries: list[Entry]
    charge: Callable[[float], None]


class FairQueue(Generic[Group, Kind, Entry]):
    """Entries by group, and in a group by kind; those of a kind keep their order.

    Within a group the kinds are served round-robin, one entry each. Groups share the server in proportion to how many
    kinds wait in them; a kind that waits in n groups counts as 1/n in each. So a kind with many entries delays no other
    kind, whether they share a group or not. An entry of a kind that is new, or seldom waits, is served after at most
    one turn of each other kind.

    This is start-time fair queueing (Goyal, Vin and Cheng, 1996): the virtual time of a group advances by the cost of
    its batches over its share.
    """

    def __init__(self) -> None:
        # Each level in the order of waiting; the innermost is an ordered set, which any entry can leave.
        self._groups: dict[Group, dict[Kind, dict[Entry, None]]] = {}
        self._starts: dict[Group, float] = {}  # virtual start times of those that wait: the least is next
        self._ends: dict[Group, float] = {}  # virtual finish times of their last batches, if not before `_now`
        self._now = 0.0  # virtual time: the start of the batch that was served last

    def __len__(self) -> int:
        """How many groups wait."""
        return len(self._groups)

    def add(self, group: Group, kind: Kind, entry: Entry) -> None:
        """Puts an entry behind the others of its kind."""
        if group not in self._groups:
            self._starts[group] = max(self._now, self._ends.get(group, 0.0))
        self._groups.setdefault(group, {}).setdefault(kind, {})[entry] = None

    def discard(self, group: Group, kind: Kind, entry: Entry) -> None:
        """Takes an entry out, if it still waits."""
        kinds = self._groups.get(group, {})
        entries = kinds.get(kind, {})
        entries.pop(entry, None)
        if not entries:
            kinds.pop(kind, None)
        if not kinds:
            self._groups.pop(group, None)
            self._starts.pop(group, None)

    def first(self) -> list[tuple[Group, Kind, Entry]]:
        """All entries of the group that is next; the queue must not be empty."""
        group = self._next()
        return [(group, kind, entry) for kind, entries in self._groups[group].items() for entry in entries]

    def head(self) -> int:
        """How many entries wait in the group that is next; the queue must not be empty."""
        return sum(map(len, self._groups[self._next()].values()))

    def take(self, max_kinds: int, count: int) -> Taken[Group, Entry]:
        """Takes up to `count` entries of up to `max_kinds` kinds, at least one of each, out of the group that is next.

        The queue must not be empty.
        """
        group, places = self._next(), Counter(kind for kinds in self._groups.values() for kind in kinds)
        kinds = self._groups.pop(group)
        share = sum(1 / places[kind] for kind in kinds)
        self._now = start = self._starts[group]
        # Of no more kinds than get an entry: the others keep their places before those that were served.
        turns = deque((kind, kinds.pop(kind)) for kind in list(islice(kinds, min(max_kinds, count))))
        batch: list[Entry] = []
        while turns and len(batch) < count:
            kind, entries = turns.popleft()
            entry = next(iter(entries))
            del entries[entry]
            batch.append(entry)
            if entries:
                turns.append((kind, entries))
        kinds.update(turns)  # behind those that this batch had no place for
        if kinds:
            self._groups[group] = kinds
        else:
            del self._starts[group]
        self._ends = {one: end for one, end in self._ends.items() if end >= self._now}
        return Taken(group, batch, lambda cost: self._charge(group, start, cost / share))

    def _charge(self, group: Group, start: float, cost: float) -> None:
        if not self._groups:
            self._ends.clear()  # nobody waited for it
            return
        self._ends[group] = end = max(start, self._ends.get(group, 0.0)) + cost
        if group in self._groups:
            self._starts[group] = max(end, self._starts[group])

    def _next(self) -> Group:
        return min(self._groups, key=self._starts.__getitem__)
