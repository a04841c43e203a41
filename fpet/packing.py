"""Modules to the tensors of a task file and back: quantised weights as packed codes, everything else as float32."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from fpet.linear import FULL_PRECISION, LowBitLinear
from fpet.quantize import Packed, code_bytes
from fpet.tensor_names import described, dtype_name


def pack_module(module: nn.Module) -> dict[str, Tensor]:
    """The module's parameters by path; a quantised `X.weight` becomes `X.weight.codes` and `X.weight.stats`."""
    tensors = {name: p.detach().float().cpu().contiguous() for name, p in module.named_parameters()}
    for name, layer in quantised_layers(module).items():
        packed = layer.packed()
        del tensors[name]
        tensors[f"{name}.codes"], tensors[f"{name}.stats"] = packed.codes.cpu(), packed.stats.cpu()
    return tensors


def check_tensors(module: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Checks that these are the tensors of the module, which may be on the meta device.

    Raises:
        ValueError: naming the first tensor that is missing, extra, or of another shape or dtype.
    """
    expected = _expected(module)
    for name in sorted(expected.keys() | tensors.keys()):
        if name not in tensors:
            raise ValueError(f"the tensor {name!r} is missing")
        if name not in expected:
            raise ValueError(f"the tensor {name!r} belongs to nothing")
        shape, dtype = expected[name]
        tensor = tensors[name]
        if tuple(tensor.shape) != shape or tensor.dtype != dtype:
            needed = f"{dtype_name(dtype)} {list(shape)}"
            raise ValueError(f"the tensor {name!r} is {described(tensor)} instead of {needed}")


def unpack_module(module: nn.Module, tensors: Mapping[str, Tensor], *, latent: bool = False) -> None:
    """Fills a module from the tensors of a file, dequantising once, or as `latent` matrices (see `LowBitLinear`).

    tensors: those of the module, as `check_tensors` has confirmed.
    """
    quantised = quantised_layers(module)
    for name, layer in quantised.items():
        layer.load_packed(Packed(tensors[f"{name}.codes"], tensors[f"{name}.stats"]), latent=latent)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if name not in quantised:
                parameter.copy_(tensors[name])


def quantised_layers(module: nn.Module) -> dict[str, LowBitLinear]:
    """Its layers of low-bit weights, by the names of these weights."""
    return {
        f"{name}.weight": layer
        for name, layer in module.named_modules()
        if isinstance(layer, LowBitLinear) and layer.bits != FULL_PRECISION
    }


def _expected(module: nn.Module) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
    expected = {name: (tuple(p.shape), torch.float32) for name, p in module.named_parameters()}
    for name, layer in quantised_layers(module).items():
        del expected[name]
        expected[f"{name}.codes"] = ((code_bytes(layer.weight.numel(), layer.bits),), torch.uint8)
        expected[f"{name}.stats"] = ((2,), torch.float32)
    return expected
