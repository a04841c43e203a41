"""Weights of a backbone's linear layers in the order in which oneDNN computes with them on a CPU.

oneDNN multiplies blocks of a matrix. torch gives it row-major weights, which it rearranges anew for every product.
"""

from __future__ import annotations

import copy
from collections.abc import MutableMapping
from functools import lru_cache
from typing import cast

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary

from fpet.errors import UnsupportedError
from fpet.inference.scripts import Script, compiled

# Rows of the products that are tried: with few rows, and for some shapes with many, other libraries add up in another
# order, and so do older versions of oneDNN for weights in row-major order.
_ROWS = 1, 256

# Reordered weights by the weights that they are copies of, as long as those exist.
_reordered: MutableMapping[Tensor, Tensor] = WeakTensorKeyDictionary()


def reorder(vit: nn.Module) -> None:
    """Keeps a copy of linear layers' weights in oneDNN's order, where products with it are the same to the last bit.

    They are on a CPU if torch has oneDNN multiply anyway. The copy takes as many bytes as the weights. There is none
    without scripts (`fpet.inference.scripts`), since nothing else computes with it.

    Raises:
        RuntimeError: if there is too little memory.
    """
    alike: dict[torch.Size, bool] = {}
    for layer in vit.modules():
        if type(layer) is nn.Linear and layer.weight.device.type == "cpu" and layer.weight not in _reordered:
            weight = layer.weight.detach()
            if weight.shape not in alike:
                alike[weight.shape] = _answers_alike(weight)
            if alike[weight.shape]:
                _reordered[layer.weight] = _in_order(weight)


def reordered_bytes(vit: nn.Module) -> int:
    """Bytes of what `reorder` holds for a backbone."""
    weights = [_reordered[weight] for weight in vit.parameters() if weight in _reordered]
    return sum(torch.ops.mkldnn._nbytes(weight) for weight in weights)


def with_reordered(module: nn.Module) -> nn.Module:
    """The module, for inference, with layers that compute with reordered weights where `reorder` was given them."""
    if type(module) is nn.Linear:
        weight = _reordered.get(module.weight)
        return module if weight is None else _ReorderedLinear.of(module, weight)
    children = {name: None if child is None else with_reordered(child) for name, child in module._modules.items()}
    if all(child is module._modules[name] for name, child in children.items()):
        return module
    same = copy.copy(module)
    same._modules = children
    return same


class _ReorderedLinear(nn.Linear):
    """A linear layer that has its weight once more, as `reordered`, which is opaque."""

    reordered: Tensor

    @classmethod
    def of(cls, layer: nn.Linear, weight: Tensor) -> _ReorderedLinear:
        made = cls.__new__(cls)
        vars(made).update(vars(layer))
        made._parameters = {**layer._parameters, "reordered": nn.Parameter(weight, requires_grad=False)}
        return made

    def _get_name(self) -> str:
        return nn.Linear.__name__  # in whose place it is

    def forward(self, x: Tensor) -> Tensor:
        return cast(Tensor, _script()(x, self.reordered, self.bias))


def _in_order(weight: Tensor) -> Tensor:
    return cast(Tensor, torch.ops.mkldnn._reorder_linear_weight(weight, None))


@torch.inference_mode()
def _answers_alike(weight: Tensor) -> bool:
    """Whether products with a reordered weight of this shape are the same to the last bit; False where torch has no
    such product, as for processors with other libraries."""
    if not torch.backends.mkldnn.is_available():
        return False
    generator = torch.Generator().manual_seed(0)
    tried = [torch.randn((rows, weight.shape[1]), generator=generator).to(weight.dtype) for rows in _ROWS]
    try:
        product, other = _script(), _in_order(weight)
        return all(torch.equal(product(x, other, None), nn.functional.linear(x, weight)) for x in tried)
    except (AttributeError, RuntimeError, UnsupportedError):
        return False


@lru_cache
def _script() -> Script:
    """`_product` as a script; a trace could not tell the element type of its empty list."""
    return compiled(_product)


def _product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    # As code that `torch.compile` makes for a CPU does; "none" is what else is done to the product.
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")  # type: ignore[no-any-return]
