"""Which number formats a device gains by computing in."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import lru_cache
from statistics import median

import torch
from torch import Tensor
from torch.nn import functional as F

from fpet.attention import attend
from fpet.hardware.cpu import configure
from fpet.hardware.paired_timing import alternate
from fpet.hardware.threads import compute_in

# By the names that recipes and settings have for them.
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}

# Rounding costs accuracy; and two timings of the same may differ by a few per cent.
_WORTH = 1.05
_ROUNDS = 5
_SECONDS = 0.5  # emulated, few rounds tell enough
# A batch of four through a layer of ViT-S.
_TOKENS, _WIDTH, _HEADS = (4, 197), 384, 6
_SHAPES = ((3 * _WIDTH, _WIDTH), (_WIDTH, _WIDTH), (4 * _WIDTH, _WIDTH), (_WIDTH, 4 * _WIDTH))


def gains_by_bfloat16(device: torch.device) -> bool:
    """Whether the device computes faster in bfloat16 than in float32.

    A GPU has instructions for it or not. A processor that has them may still be slower, so there it is measured, once
    in a process. Any other device counts as faster.
    """
    if device.type == "cpu":
        return bfloat16_speed_up() > _WORTH
    if device.type != "cuda":
        return True
    # There is no such GPU, which its use will refuse. The count alone may include GPUs that the driver is too old for.
    if not torch.cuda.is_available() or (device.index or 0) >= torch.cuda.device_count():
        return False
    with torch.cuda.device(device):  # it asks the current one
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))


@lru_cache
def bfloat16_speed_up() -> float:
    """Time of a transformer's layer in float32 over its time in bfloat16, on this machine's CPU in one thread."""
    configure("cpu")  # as for a backbone that computes there
    threads = torch.get_num_threads()
    compute_in(1)
    try:
        return _measure()
    finally:
        compute_in(threads)


def slowness(precision: str, device: torch.device) -> str:
    """A warning if this precision, a name of DTYPES, is no faster than float32 on this device; else empty."""
    if precision != "bfloat16" or gains_by_bfloat16(device):
        return ""
    if device.type == "cuda":
        return "this GPU has no instructions for bfloat16: it is emulated, and slower than float32"
    return f"this CPU is no faster in bfloat16: a layer has {bfloat16_speed_up():.2f} of the speed that float32 has"


@torch.inference_mode()
def _measure() -> float:
    types = torch.float32, torch.bfloat16
    weights = {dtype: [torch.zeros(shape, dtype=dtype) for shape in _SHAPES] for dtype in types}

    def seconds(dtype: torch.dtype) -> float:
        x = torch.zeros((*_TOKENS, _WIDTH), dtype=dtype)
        began = time.thread_time()  # in which other work of the machine does not count
        _layer(x, weights[dtype])
        return time.thread_time() - began

    for dtype in types:
        seconds(dtype)  # which sets up what later ones find
    exact, rounded = alternate(_ROUNDS, lambda first: seconds(types[0] if first else types[1]), longest=_SECONDS)
    return median(slow / fast for slow, fast in zip(exact, rounded, strict=True))


def _layer(x: Tensor, weights: Sequence[Tensor]) -> Tensor:
    """What a ViT's block computes, [B, N, C] -> [B, N, C]."""
    qkv, proj, fc1, fc2 = weights
    q, k, v = F.linear(x, qkv).unflatten(-1, (3, _HEADS, -1)).permute(2, 0, 3, 1, 4).unbind(0)
    mixed = attend(q, k, v, None)
    x = x + F.linear(mixed.transpose(1, 2).flatten(2), proj)
    return x + F.linear(F.gelu(F.linear(F.layer_norm(x, x.shape[-1:]), fc1)), fc2)
