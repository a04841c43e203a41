"""The order in which those who wait are served."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterator
from itertools import islice
from typing import Generic, TypeVar

Group = TypeVar("Group", bound=Hashable)
Kind = TypeVar("Kind", bound=Hashable)
Entry = TypeVar("Entry", bound=Hashable)


class FairQueue(Generic[Group, Kind, Entry]):
    """Entries by group, and in a group by kind; those of a kind keep their order.

    In a group its kinds take turns, one entry each. Groups share what serves them in proportion to how many kinds wait
    in them, where one that waits in several groups counts once: so a kind with many entries holds up nobody, whether
    they are among others or in groups of their own. Who comes anew, or seldom, is next: this is start-time fair
    queueing (Goyal, Vin and Cheng, 1996), in which a group's time runs as fast as its share is small.
    """

    def __init__(self) -> None:
        # Ordered by who waits for longer; the innermost is an ordered set, which an entry can leave from anywhere.
        self._groups: dict[Group, dict[Kind, dict[Entry, None]]] = {}
        self._times: dict[Group, float] = {}  # of those that wait, or would come back later than now
        self._now = 0.0  # the time of the group that was served last

    def __len__(self) -> int:
        """How many groups wait."""
        return len(self._groups)

    def add(self, group: Group, kind: Kind, entry: Entry) -> None:
        """Puts an entry behind the others of its kind."""
        if group not in self._groups:
            self._times[group] = self._time(group)
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

    def first(self) -> Iterator[tuple[Group, Kind, Entry]]:
        """What waits in the group that is next; entries may be discarded meanwhile, and another be next then."""
        if self._groups:
            group = self._next()
            yield from [(group, kind, entry) for kind, entries in self._groups[group].items() for entry in entries]

    def take(self, max_kinds: int, size: Callable[[int], int]) -> tuple[Group, list[Entry], float]:
        """Takes a batch out of the group that is next; also returns the group's share, to be charged by.

        size: how many entries to take, at least one, given how many wait in the group; it may look at the queue, in
        which the group is no longer.
        """
        group, places = self._next(), Counter(kind for kinds in self._groups.values() for kind in kinds)
        kinds = self._groups.pop(group)
        share = sum(1 / places[kind] for kind in kinds)
        self._now = max(self._now, self._times[group])
        wanted = size(sum(len(entries) for entries in kinds.values()))
        # Of no more kinds than get an entry: the others keep their places before those that were served.
        turns = deque((kind, kinds.pop(kind)) for kind in list(islice(kinds, min(max_kinds, wanted))))
        batch: list[Entry] = []
        while turns and len(batch) < wanted:
            kind, entries = turns.popleft()
            entry = next(iter(entries))
            del entries[entry]
            batch.append(entry)
            if entries:
                turns.append((kind, entries))
        kinds.update(turns)  # behind those that this batch had no place for
        if kinds:
            self._groups[group] = kinds
        self._times = {one: at for one, at in self._times.items() if at > self._now or one in self._groups}
        return group, batch, share

    def charge(self, group: Group, cost: float) -> None:
        """Tells what a batch took of what serves all, divided by the group's share."""
        if self._groups:
            self._times[group] = self._time(group) + cost
        else:
            self._times.clear()  # nobody waited for it

    def _time(self, group: Group) -> float:
        return max(self._now, self._times.get(group, 0.0))

    def _next(self) -> Group:
        return min(self._groups, key=self._times.__getitem__)
