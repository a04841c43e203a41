"""Whether two forwards are the same function: noise to try them on, and whether their outputs differ too much."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

# Relative differences of embeddings that rounding explains. In bfloat16 those of the embedded tasks are 0.5 to 1.4 %
# from float32's.
_TOLERANCES = {torch.float16: 0.01, torch.bfloat16: 0.06}
_TOLERANCE = 0.003  # in float32 and beyond


def noise(vit: nn.Module, images: int = 1) -> Tensor:
    """Normal values [images, 3, H, W], always the same, of the size that timm's `vit` takes, its dtype and device."""
    backbone: Any = vit
    return normal(images, 3, *backbone.patch_embed.img_size).to(backbone.patch_embed.proj.weight)


def normal(*shape: int) -> Tensor:
    """Normal values, always the same, float32 on the CPU."""
    return torch.randn(shape, generator=torch.Generator("cpu").manual_seed(0), dtype=torch.float32, device="cpu")


def beyond_rounding(found: Tensor, expected: Tensor, dtype: torch.dtype) -> float | None:
    """The norm of the difference, if rounding to `dtype` does not explain it; None if it does.

    found, expected: of one shape. If a value of either is not finite, nothing explains it.
    """
    expected = expected.float()
    difference = (found.float() - expected).norm().item()
    explained = _TOLERANCES.get(dtype, _TOLERANCE) * expected.norm().item()
    return _beyond(difference, explained)


def beyond_tolerance(found: Tensor, expected: Tensor, tolerance: float) -> float | None:
    """The largest difference of two values, if it is above `tolerance` times the largest expected one; None if not.

    found, expected: of one shape and dtype. If a value of either is not finite, they differ.
    """
    return _beyond((found - expected).abs().max().item(), tolerance * expected.abs().max().item())


def _beyond(difference: float, allowed: float) -> float | None:
    return None if difference <= allowed < math.inf else difference  # with NaN every comparison is false
