"""What `auto` and 0 in the settings mean on this machine."""

from __future__ import annotations

import os

import torch


def pick_device(name: str) -> torch.device:
    """`auto` is the first CUDA device if there is one, else the CPU."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)


def pick_dtype(name: str, device: torch.device) -> torch.dtype:
    """`auto` is bfloat16 where the hardware multiplies in it, else float32."""
    if name == "auto":
        name = "bfloat16" if _has_bfloat16(device) else "float32"
    return {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[name]


def cores() -> int:
    """Processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def pick_workers(workers: int, device: torch.device) -> int:
    """0 is one forward a core on the CPU and one on a GPU."""
    if workers:
        return workers
    # Two single-threaded forwards get more done than one forward of two threads.
    return cores() if device.type == "cpu" else 1


def _has_bfloat16(device: torch.device) -> bool:
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    # Without these instructions bfloat16 is emulated and slower than float32.
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())
