"""Folded tasks: their own weights beside those that they share with the backbone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from fpet.folding import fold
from fpet.hardware.storages import storages
from fpet.inference.programs import Batch, Program
from fpet.vit import AdaptedViT


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
