"""What `auto` and 0 in the settings mean on this machine."""

from __future__ import annotations

import logging

import torch

from fpet.hardware.cores import cores
from fpet.hardware.precision import bfloat16_speed_up, gains_by_bfloat16

logger = logging.getLogger(__name__)


def pick_device(name: str) -> torch.device:
    """`auto` is the first CUDA device if there is one, else the CPU."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)


def name_dtype(name: str, device: torch.device) -> str:
    """A name in DTYPES: `auto` is bfloat16 where the device is faster in it, else float32."""
    if name == "auto":
        name = "bfloat16" if gains_by_bfloat16(device) else "float32"
        if device.type == "cpu":
            logger.info("computing in %s: bfloat16 has %.2f of the speed of float32 here", name, bfloat16_speed_up())
    return name


def share_of_cores(processes: int) -> int:
    """Cores that each of so many processes may use, if they share them evenly; one at least."""
    return max(1, cores() // processes)
