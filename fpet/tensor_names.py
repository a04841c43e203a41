"""Tensors and their dtypes in messages."""

from __future__ import annotations

import torch
from torch import Tensor


def dtype_name(dtype: torch.dtype) -> str:
    """`float32`, without torch's own name in front."""
    return str(dtype).removeprefix("torch.")


def described(value: object) -> str:
    """Dtype and shape of a tensor, as `float32 [2, 3]`; the type of anything else, as `ndarray`."""
    return f"{dtype_name(value.dtype)} {list(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
