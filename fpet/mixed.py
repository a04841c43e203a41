"""One forward for images of different tasks: the frozen backbone runs once, every image with its own task's weights.

The formulas of adapters and reducers take a weight per image as well as one for all (`fpet.linear`). So the tasks'
tensors are stacked along a batch axis, and the one forward pass runs as it always does.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from fpet.adapters import ADAPTERS
from fpet.header import Method, TaskHeader
from fpet.reducers import REDUCERS
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


def features(models: Sequence[AdaptedViT], images: Tensor) -> Tensor:
    """Pooled embeddings [B, C] of normalised images [B, 3, H, W], the i-th image by the i-th model.

    The models are of one family, in evaluation mode, on the images' device. Where all are the same, nothing is stacked.
    """
    first = models[0]
    if all(model is first for model in models):
        return first.features(images)
    # Another thread may be running `first`: what is changed is a copy of its modules.
    adapter = _stacked([model.adapter for model in models], {})
    reducer = _stacked([model.reducer for model in models], {})
    return AdaptedViT(first.backbone, adapter, reducer, first.head).eval().features(images)


def _stacked(modules: Sequence[Any], seen: dict[int, Any]) -> Any:
    """A module like each of these, whose parameters are all of theirs, stacked along a first axis.

    seen: what has become of modules by identity, since blocks may share one.
    """
    first = modules[0]
    if id(first) not in seen:
        both = seen[id(first)] = first.__new__(type(first))
        # A deep copy would take longer than a small forward.
        both.__dict__ = {
            **first.__dict__,
            "_parameters": {
                name: None if value is None else torch.stack([module.get_parameter(name) for module in modules])
                for name, value in first._parameters.items()
            },
            "_modules": {
                name: _stacked([module.get_submodule(name) for module in modules], seen) for name in first._modules
            },
        }
    return seen[id(first)]


def _shape(registry: Mapping[str, type[Any]], method: Method) -> list[object]:
    parameters = inspect.signature(registry[method.kind]).parameters.values()
    defaults = {item.name: item.default for item in parameters if item.kind is inspect.Parameter.KEYWORD_ONLY}
    arguments = {**defaults, **method.arguments}
    return [method.kind, {name: value for name, value in arguments.items() if name not in _TRAINING_ONLY}]
