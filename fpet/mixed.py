"""One forward for images of different tasks: the frozen backbone runs once, every image with its own task's weights.

The formulas of adapters and reducers take a weight per image as well as one for all (`fpet.linear`). So the tasks'
tensors are stacked along a batch axis, and the one forward pass runs as it always does. What tasks of a family differ
in are tensors alone: there is one model for all of them, and of each task one piece of memory.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fpet.adapters import ADAPTERS
from fpet.errors import UnsupportedError
from fpet.header import Method, TaskHeader
from fpet.linear import LowBitLinear, linear
from fpet.reducers import REDUCERS
from fpet.skeleton import Skeleton
from fpet.vit import AdaptedViT

# Without meaning at inference: weights are dequantised when they are loaded, and nothing is dropped.
_TRAINING_ONLY = frozenset({"bits", "dropout"})
# Numbers between the starts of two tensors are a multiple of this, so that each starts on a cache line.
_ALIGNMENT = 32


def family(header: TaskHeader) -> str:
    """What tasks have in common that can share a forward: backbone, methods with their arguments, and image size.

    Bits and dropout are left out, and an argument that is not given counts as its default. Heads may differ.
    """
    methods = [
        _shape(registry, method) for registry, method in ((ADAPTERS, header.adapter), (REDUCERS, header.reducer))
    ]
    return json.dumps([header.backbone.fingerprint, *methods, header.preprocessing.size], sort_keys=True)


class Weights(NamedTuple):
    """A task's tensors, views of one piece of memory.

    sites: [P], those of adapter and reducer, as the template of the family lays them out; head: [K, C]; bias: [K].
    """

    sites: Tensor
    head: Tensor
    bias: Tensor | None

    @property
    def nbytes(self) -> int:
        """Bytes of that memory."""
        return self.sites.untyped_storage().nbytes()

    def logits(self, embeddings: Tensor) -> Tensor:
        """[B, C] -> [B, K]."""
        return linear(embeddings, self.head, self.bias)


class Template:
    """The model that the tasks of a family have in common, without their weights. Any thread may call the methods.

    model: of any of these tasks, loaded from its file; it is left alone.

    Raises:
        UnsupportedError: if its weights are yet to be rounded.
    """

    def __init__(self, model: AdaptedViT) -> None:
        parameters = _site_parameters(model)
        self._lengths = _aligned(parameters)
        starts = accumulate(self._lengths, initial=0)
        empty = [parameter.detach().to("meta").contiguous() for parameter in parameters]
        self._places = [(one.shape, one.stride(), start) for one, start in zip(empty, starts, strict=False)]
        bare = AdaptedViT(model.backbone, model.adapter, model.reducer, nn.Identity()).eval()
        # Nothing of the task itself is kept, not even until its family is gone.
        self._models = {
            True: Skeleton(Skeleton(bare, parameters).filled(empty), empty),
            False: Skeleton(Skeleton(bare.unreduced(), parameters).filled(empty), empty),
        }

    @property
    def foldable(self) -> bool:
        """Whether tasks of the family fold."""
        return self._models[True].model.adapter.foldable

    @property
    def nbytes(self) -> int:
        """Bytes of what it holds beside the backbone."""
        model = self._models[True].model
        storages = [buffer.untyped_storage() for part in (model.adapter, model.reducer) for buffer in part.buffers()]
        return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())

    def weights(self, model: AdaptedViT) -> Weights:
        """Copies the tensors of a task of the family, loaded from its file.

        Raises:
            UnsupportedError: if they are yet to be rounded.
        """
        tensors = [*_site_parameters(model), *model.head.parameters()]
        lengths = _aligned(tensors)
        memory = torch.zeros(sum(lengths), dtype=tensors[0].dtype, device=tensors[0].device)
        copies = [
            piece[: tensor.numel()].copy_(tensor.detach().flatten()).view_as(tensor)
            for piece, tensor in zip(memory.split(lengths), tensors, strict=True)
        ]
        head, bias = copies[len(self._places)], copies[len(self._places) + 1 :]
        return Weights(memory[: sum(self._lengths)], head, bias[0] if bias else None)

    def model(self, sites: Tensor, *, reduced: bool = True) -> AdaptedViT:
        """A task's model without its head, or that of a batch with a set of weights an image.

        sites: [P] or [B, P], which are not copied. Where not `reduced`, the model keeps all tokens.
        """
        batch, strides, first = sites.shape[:-1], sites.stride()[:-1], sites.storage_offset()
        tensors = [
            sites.as_strided((*batch, *shape), (*strides, *stride), first + start)
            for shape, stride, start in self._places
        ]
        return self._models[reduced].filled(tensors)

    def features(self, each: Sequence[Weights], images: Tensor, *, reduced: bool = True) -> Tensor:
        """Pooled embeddings [B, C] of normalised images [B, 3, H, W], the i-th image by the i-th task's weights.

        Where all are the same, nothing is stacked.
        """
        first = each[0]
        alone = all(weights is first for weights in each)
        sites = first.sites if alone else torch.stack([weights.sites for weights in each])
        return self.model(sites, reduced=reduced).features(images)


def _site_parameters(model: AdaptedViT) -> list[nn.Parameter]:
    """Of adapter and reducer, each once."""
    if any(isinstance(module, LowBitLinear) and module.latent for module in model.trainable().modules()):
        # They would be rounded as if they were those of the task that the template was made from.
        raise UnsupportedError("weights of different tasks must be rounded: load the tasks from their files")
    return list(nn.ModuleList([model.adapter, model.reducer]).parameters())


def _aligned(tensors: Sequence[Tensor]) -> list[int]:
    """Lengths of the pieces of memory that hold them."""
    return [-(-tensor.numel() // _ALIGNMENT) * _ALIGNMENT for tensor in tensors]


def _shape(registry: Mapping[str, type[Any]], method: Method) -> list[object]:
    parameters = inspect.signature(registry[method.kind]).parameters.values()
    defaults = {item.name: item.default for item in parameters if item.kind is inspect.Parameter.KEYWORD_ONLY}
    arguments = {**defaults, **method.arguments}
    return [method.kind, {name: value for name, value in arguments.items() if name not in _TRAINING_ONLY}]
