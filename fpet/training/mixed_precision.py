"""The number formats that a training step computes in."""

from __future__ import annotations

import torch

from fpet.errors import UnsupportedError
from fpet.hardware.precision import DTYPES


def mixed_precision(device: torch.device, precision: str) -> tuple[torch.autocast, torch.amp.GradScaler]:
    """Autocast, and the scaler of the loss, which scales by 1 save in float16, where gradients would vanish.

    Raises:
        UnsupportedError: for float16 on a CPU.
    """
    if precision == "float16" and device.type != "cuda":
        raise UnsupportedError(f"float16 is for training on a GPU; on {device.type} there is bfloat16")
    dtype = DTYPES[precision]
    exact = dtype is torch.float32
    autocast = torch.autocast(device.type, None if exact else dtype, enabled=not exact)
    return autocast, torch.amp.GradScaler(device.type, enabled=dtype is torch.float16)
