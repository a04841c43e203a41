"""The tensors of loaded tasks, in one piece of memory for each task."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor, nn

from fpet.errors import UnsupportedError
from fpet.linear import LowBitLinear, linear
from fpet.vit import AdaptedViT

# Numbers between the starts of two tensors are a multiple of this, so that each starts on a cache line.
_ALIGNMENT = 32


def aligned_lengths(shapes: Sequence[torch.Size]) -> list[int]:
    """For each shape the elements of memory that its tensor takes, rounded up to a multiple of 32."""
    return [-(-shape.numel() // _ALIGNMENT) * _ALIGNMENT for shape in shapes]


class Place(NamedTuple):
    """Where a tensor of that shape lies in a piece of memory."""

    start: int
    shape: torch.Size

    def of(self, memory: Tensor) -> Tensor:
        """[P] or [B, P] -> [*shape] or [B, *shape], a view."""
        return memory.narrow(-1, self.start, self.shape.numel()).view((*memory.shape[:-1], *self.shape))


def lay_out(shapes: Sequence[torch.Size]) -> tuple[Place, ...]:
    """Places for tensors of these shapes, one after the other."""
    starts = accumulate(aligned_lengths(shapes), initial=0)
    return tuple(Place(start, shape) for start, shape in zip(starts, shapes, strict=False))


def refuse_latent(model: AdaptedViT) -> None:
    """Raises UnsupportedError if low-bit weights of the model are latent: not yet rounded, as in training."""
    if any(isinstance(module, LowBitLinear) and module.latent for module in model.trainable().modules()):
        # A template would round them as if they were those of the task that it was made from.
        raise UnsupportedError("weights of different tasks must be rounded: load the tasks from their files")


def method_parameters(model: AdaptedViT) -> list[nn.Parameter]:
    """The parameters of adapter and reducer, each once."""
    return list(nn.ModuleList([model.adapter, model.reducer]).parameters())


class Weights(NamedTuple):
    """A task's tensors, views of one piece of memory.

    flat: [P], the parameters of adapter and reducer one after the other, as `lay_out` places them; head: [K, C];
    bias: [K].
    """

    flat: Tensor
    head: Tensor
    bias: Tensor | None

    @classmethod
    def of(cls, model: AdaptedViT) -> Weights:
        """Copies the tensors of a task, loaded from its file.

        Raises:
            UnsupportedError: if they are yet to be rounded.
        """
        refuse_latent(model)
        methods, head = method_parameters(model), list(model.head.parameters())
        tensors = [*methods, *head]
        shapes = [tensor.shape for tensor in tensors]
        lengths = aligned_lengths(shapes)
        memory = torch.zeros(sum(lengths), dtype=tensors[0].dtype, device=tensors[0].device)
        for place, tensor in zip(lay_out(shapes), tensors, strict=True):
            place.of(memory).copy_(tensor.detach())
        return cls.within(memory, sum(lengths[: len(methods)]), shapes[len(methods) :])

    @classmethod
    def within(cls, memory: Tensor, length: int, head: Sequence[torch.Size]) -> Weights:
        """Views of a task's memory: `length` numbers of adapter and reducer, then tensors of the head's shapes."""
        views = [place.of(memory[length:]) for place in lay_out(head)]
        return cls(memory[:length], views[0], views[1] if len(views) > 1 else None)

    @property
    def nbytes(self) -> int:
        """Bytes of that memory."""
        return self.flat.untyped_storage().nbytes()

    def logits(self, embeddings: Tensor) -> Tensor:
        """[B, C] -> [B, K]."""
        return linear(embeddings, self.head, self.bias)
