"""Folded tasks: their weights beside those that they share with the backbone, and a cache of them within a budget."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn

from fpet.fold import fold
from fpet.hardware.storages import storages
from fpet.inference.programs import Batch, Program
from fpet.vit import AdaptedViT
from service.errors import ConflictError

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, eq=False)
class Instance:
    """A task, without its head, whose adapter is folded into weights of its own; it is never changed.

    bytes: of what it does not share with the backbone; programs: by whether they reduce tokens, where there are any.
    """

    reduced: AdaptedViT
    full: AdaptedViT
    bytes: int
    programs: Mapping[bool, Program] = field(default_factory=dict)

    def features(self, images: Tensor, *, reduced: bool) -> Tensor:
        """Pooled embeddings [B, C] of normalised images [B, 3, H, W], without a gradient."""
        model = self.reduced if reduced else self.full
        program = self.programs.get(reduced)
        return model.features(images) if program is None else program.features(Batch(images))


def make_instance(exact: AdaptedViT, vit: nn.Module) -> Instance:
    """Folds a task into a copy of the backbone that shares all tensors which folding leaves as they are.

    exact: the task in float32, because an update that is small beside its weight would be rounded away in less; its
    reducer becomes the instance's; vit: the backbone in the precision and on the device that the instance gets too.

    Raises:
        UnsupportedError: if the adapter does not fold.
    """
    model, like = fold(exact), next(vit.parameters())
    frozen = dict(vit.named_parameters(remove_duplicate=False))
    left = {id(parameter) for parameter in exact.vit.parameters()}
    for name, value in list(model.vit.named_parameters(remove_duplicate=False)):
        module, _, leaf = name.rpartition(".")
        parameter = frozen.get(name)
        # What folding left alone need not travel to the device to be found the same there.
        if parameter is None or id(value) not in left:
            weight = value.to(like)
            # Compared in the precision that serves: what is equal there need not be held twice.
            if parameter is None or not torch.equal(weight, parameter):
                parameter = nn.Parameter(weight, requires_grad=False)
        setattr(model.vit.get_submodule(module), leaf, parameter)
    reduced = AdaptedViT(model.backbone, model.adapter, model.reducer.to(like), nn.Identity()).eval()
    return Instance(reduced, reduced.unreduced(), own_bytes(reduced, vit))


def own_bytes(module: nn.Module, *others: nn.Module) -> int:
    """Bytes of the storages under a module's parameters and buffers that are not also under one of the others."""
    elsewhere = {place for other in others for place in _storages(other)}
    return sum(size for place, size in _storages(module).items() if place not in elsewhere)


def _storages(module: nn.Module) -> dict[int, int]:
    return storages((*module.parameters(), *module.buffers()))


def _any(_: object) -> bool:
    return True


class FoldedCache(Generic[Key]):
    """Instances within a budget of bytes. What was not asked for the longest goes first, what is pinned never.

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
        """Bytes of all instances."""
        with self._lock:
            return self._bytes(self._instances)

    def use(self, key: Key) -> Instance | None:
        """The instance, which counts as asked for."""
        with self._lock:
            if key in self._instances:
                self._instances.move_to_end(key)
            return self._instances.get(key)

    def look(self, key: Key) -> tuple[Instance | None, bool]:
        """The instance, which does not count as asked for, and whether it is pinned."""
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
