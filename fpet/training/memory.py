"""What a training step keeps in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from weakref import WeakSet

from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from fpet.hardware.storages import storages


def saved_bytes(loss: Callable[[], Tensor], owned: Iterable[Tensor]) -> int:
    """Bytes that autograd keeps for the backward pass of `loss()`: what a training step holds besides its model.

    Each piece of memory counts once, whole, however many views of it are kept; those of `owned`, the model's own
    parameters and buffers, do not. The number does not depend on the machine's load or on what ran before.
    """
    held: WeakSet[_Held] = WeakSet()

    def hold(tensor: Tensor) -> _Held:
        one = _Held(tensor.detach())  # without grad_fn: an output that its grad_fn saves would be a cycle
        held.add(one)
        return one

    with saved_tensors_hooks(hold, lambda one: one.tensor):
        alive = loss()  # what does not lead to it is gone by now
    kept = storages(one.tensor for one in held)
    del alive
    return sum(kept[place] for place in kept.keys() - storages(owned).keys())


@dataclass(eq=False)
class _Held:
    """A saved tensor; the object lives as long as the graph keeps it."""

    tensor: Tensor
