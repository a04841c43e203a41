"""One forward for images of different tasks: the frozen backbone runs once, every image with its own task's weights.

The formulas of adapters and reducers take a weight per image as well as one for all (`fpet.linear`). So the tasks'
tensors are stacked along a batch axis, and the one forward pass runs as it always does. What tasks of a family differ
in are tensors alone: there is one model for all of them, and of each task one piece of memory.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn

from fpet.adapters import ADAPTERS
from fpet.header import Method, TaskHeader
from fpet.reducers import REDUCERS
from fpet.registry import keyword_parameters
from fpet.skeleton import Skeleton
from fpet.task_weights import Weights, aligned_lengths, refuse_latent, site_parameters
from fpet.vit import AdaptedViT

# Without meaning at inference: weights are dequantised when they are loaded, and nothing is dropped.
_TRAINING_ONLY = frozenset({"bits", "dropout"})


def family(header: TaskHeader) -> str:
    """What tasks have in common that can share a forward: backbone, methods with their arguments, and image size.

    Bits and dropout are left out, and an argument that is not given counts as its default. Heads may differ.
    """
    methods = [
        _shape(registry, method) for registry, method in ((ADAPTERS, header.adapter), (REDUCERS, header.reducer))
    ]
    return json.dumps([header.backbone.fingerprint, *methods, header.preprocessing.size], sort_keys=True)


class Template:
    """The model that the tasks of a family have in common, without their weights. Any thread may call the methods.

    model: of any of these tasks, loaded from its file; it is left alone.

    Raises:
        UnsupportedError: if its weights are yet to be rounded.
    """

    def __init__(self, model: AdaptedViT) -> None:
        refuse_latent(model)
        parameters = site_parameters(model)
        starts = accumulate(aligned_lengths([parameter.shape for parameter in parameters]), initial=0)
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


def _shape(registry: Mapping[str, type[Any]], method: Method) -> list[object]:
    defaults = {name: each.default for name, each in keyword_parameters(registry[method.kind]).items()}
    arguments = {**defaults, **method.arguments}
    return [method.kind, {name: value for name, value in arguments.items() if name not in _TRAINING_ONLY}]
