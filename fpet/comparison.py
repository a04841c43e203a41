"""Whether two forwards are the same function: noise to try them on, and what rounding explains of a difference."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

# What rounding explains of an embedding, as a multiple of the root of the precision: 0.3 % of it in float32.
_TOLERANCE = 10


def noise(vit: nn.Module, images: int = 1) -> Tensor:
    """Normal values [images, 3, H, W], always the same, of the size that timm's `vit` takes, its dtype and device."""
    backbone: Any = vit
    generator = torch.Generator().manual_seed(0)
    shape = (images, 3, *backbone.patch_embed.img_size)
    return torch.randn(shape, generator=generator).to(backbone.patch_embed.proj.weight)


def beyond_rounding(found: Tensor, expected: Tensor, dtype: torch.dtype) -> float | None:
    """The norm of the difference, if rounding to `dtype` does not explain it; None if it does.

    found, expected: of one shape. If a value of either is not finite, nothing explains it.
    """
    expected = expected.float()
    difference = (found.float() - expected).norm().item()
    explained = _TOLERANCE * torch.finfo(dtype).eps ** 0.5 * expected.norm().item()
    return None if difference <= explained < math.inf else difference  # with NaN every comparison is false
