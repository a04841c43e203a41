"""A cache of folded tasks within a budget of memory."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable
from typing import Generic, TypeVar

from service.errors import ConflictError
from service.model.folded import Instance

Key = TypeVar("Key", bound=Hashable)


def _any(_: object) -> bool:
    return True


class FoldedCache(Generic[Key]):
    """Instances within a budget of bytes: least recently used first out, pinned ones never.

    evicted: called for each that had to make room for another. Any thread may call the methods.
    """

    def __init__(self, budget: int, evicted: Callable[[], None]) -> None:
        self._budget = budget
        self._evicted = evicted
        self._instances: OrderedDict[Key, Instance] = OrderedDict()
        self._pinned: set[Key] = set()
        self._lock = threading.Lock()

    @property
    def bytes(self) -> int:
        """Bytes of all instances, beside the backbone."""
        with self._lock:
            return self._bytes(self._instances)

    def use(self, key: Key) -> Instance | None:
        """The instance, which is now the most recently used; None if there is none."""
        with self._lock:
            if key in self._instances:
                self._instances.move_to_end(key)
            return self._instances.get(key)

    def look(self, key: Key) -> tuple[Instance | None, bool]:
        """The instance, which does not count as used by that, and whether it is pinned."""
        with self._lock:
            return self._instances.get(key), key in self._pinned

    def fits(self, key: Key, size: int, spare: Callable[[Key], bool]) -> bool:
        """Whether `add` would find room for an instance of that many bytes."""
        with self._lock:
            return self._bytes(self._staying(key, self._spared(key, spare))) + size <= self._budget

    def add(self, key: Key, instance: Instance, *, pinned: bool = False, spare: Callable[[Key], bool] = _any) -> None:
        """Adds an instance, and evicts others that `spare` returns true for until the budget holds.

        Raises:
            ConflictError: if the budget would be exceeded even so; nothing is evicted then.
        """
        with self._lock:
            spared = self._spared(key, spare)  # asked once, since what it says may change meanwhile
            taken = self._bytes(self._staying(key, spared))
            if taken + instance.bytes > self._budget:
                raise ConflictError(
                    f"the folded task has {instance.bytes} bytes; of the {self._budget} of folded_bytes "
                    f"{taken} are taken by tasks that are pinned{'' if pinned else ' or about as hot'}"
                )
            if pinned:
                self._pinned.add(key)
            self._instances[key] = instance
            self._instances.move_to_end(key)
            for other in spared:
                if self._bytes(self._instances) <= self._budget:
                    break
                del self._instances[other]
                self._evicted()

    def pin(self, key: Key) -> bool:
        """Pins an instance, which then is not evicted; returns whether it is there."""
        with self._lock:
            if key in self._instances:
                self._pinned.add(key)
            return key in self._pinned

    def unpin(self, key: Key) -> None:
        """Lets an instance be evicted like any other."""
        with self._lock:
            self._pinned.discard(key)

    def discard(self, key: Key) -> None:
        """Drops an instance, if it is there."""
        with self._lock:
            self._instances.pop(key, None)
            self._pinned.discard(key)

    def retain(self, keys: Collection[Key]) -> None:
        """Drops all instances but these."""
        with self._lock:
            for key in self._instances.keys() - set(keys):
                del self._instances[key]
                self._pinned.discard(key)

    def _spared(self, key: Key, spare: Callable[[Key], bool]) -> list[Key]:
        """The keys that may be evicted for this one, least recently used first."""
        return [other for other in self._instances if other != key and other not in self._pinned and spare(other)]

    def _staying(self, key: Key, spared: Collection[Key]) -> set[Key]:
        """The keys of the instances that would stay beside this one."""
        return self._instances.keys() - {key, *spared}

    def _bytes(self, keys: Collection[Key]) -> int:
        return sum(self._instances[key].bytes for key in keys)
