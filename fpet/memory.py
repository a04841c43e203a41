"""What a training step keeps in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks


def saved_bytes(loss: Callable[[], Tensor], owned: Iterable[Tensor]) -> int:
    """Bytes that autograd keeps for the backward pass of `loss()`: what a training step holds besides its model.

    Each piece of memory counts once, whole, however many views of it are kept; those of `owned`, the model's own
    parameters and buffers, do not. The number does not depend on the machine's load or on what ran before.
    """
    own = {tensor.untyped_storage().data_ptr() for tensor in owned}
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor.detach()  # or an output would keep its function, and that the output

    with saved_tensors_hooks(keep, lambda tensor: tensor):
        alive = loss()  # an address is not used again while the graph holds it
    del alive
    return sum(kept.values())
