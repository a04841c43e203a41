"""Which number formats a device computes in."""

from __future__ import annotations

import torch


def has_bfloat16(device: torch.device) -> bool:
    """Whether the device has instructions for bfloat16; without them it is emulated and slower than float32."""
    if device.type == "cuda":
        if (device.index or 0) >= torch.cuda.device_count():  # there is none, as its use will show
            return False
        with torch.cuda.device(device):  # it asks the current one
            return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


def emulation(precision: str, device: torch.device) -> str:
    """Says that a training in this precision, a name of PRECISIONS, is slow on this device; else empty."""
    if precision != "bfloat16" or has_bfloat16(device):
        return ""
    return (
        f"this {device.type} has no instructions for bfloat16 that torch knows of: it is emulated, and slower than "
        "float32"
    )
