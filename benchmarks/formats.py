"""The number format of what is timed: measured once, for all that is compared, whatever process it runs in."""

from __future__ import annotations

from functools import cache

import torch

from fpet.hardware.precision import DTYPES
from service.hardware import name_dtype

CPU = torch.device("cpu")


@cache
def cpu_format() -> str:
    """That in which `fpet serve` computes on this machine's processor."""
    return name_dtype("auto", CPU)


def cpu_dtype() -> torch.dtype:
    """The same as torch's type."""
    return DTYPES[cpu_format()]


def in_it() -> list[str]:
    """Options with which `fpet serve` computes in it."""
    return ["--device", CPU.type, "--dtype", cpu_format()]
