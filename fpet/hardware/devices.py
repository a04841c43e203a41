"""What a device is called in tables and task files."""

from __future__ import annotations

import torch

from fpet.hardware import cpu


def device_name(device: torch.device) -> str:
    """The name of the GPU or of the processor, or "cpu" where the system does not tell it."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else cpu.name()
