"""The order in which those who wait are served."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator
from itertools import islice
from typing import Generic, TypeVar

Group = TypeVar("Group", bound=Hashable)
Kind = TypeVar("Kind", bound=Hashable)
Entry = TypeVar("Entry", bound=Hashable)


class FairQueue(Generic[Group, Kind, Entry]):
    """Entries by group, and in a group by kind; those of a kind keep their order.

    Groups take turns, and in a group its kinds take turns, one entry each: a kind with many entries holds up nobody.
    """

    def __init__(self) -> None:
        # Ordered by whose turn it is; the innermost is an ordered set, which an entry can leave from anywhere.
        self._groups: dict[Group, dict[Kind, dict[Entry, None]]] = {}

    def __len__(self) -> int:
        """How many groups wait."""
        return len(self._groups)

    def add(self, group: Group, kind: Kind, entry: Entry) -> None:
        """Puts an entry behind the others of its kind."""
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
        """What waits in the group whose turn it is; entries may be discarded meanwhile."""
        for group, kinds in islice(self._groups.items(), 1):
            yield from [(group, kind, entry) for kind, entries in kinds.items() for entry in entries]

    def take(self, max_kinds: int, size: Callable[[int], int]) -> tuple[Group, list[Entry]]:
        """Takes a batch out of the group whose turn it is; afterwards it is behind all others.

        size: how many entries to take, at least one, given how many wait in the group; it may look at the queue, in
        which the group is no longer.
        """
        group = next(iter(self._groups))
        kinds = self._groups.pop(group)
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
        return group, batch
