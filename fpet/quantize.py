"""Low-bit weights: a normal-quantile code book per bit width, with a gradient through the rounding.

Source: Jie et al., "Revisiting the Parameter Efficiency of Adapters from the Perspective of Precision Redundancy"
(ICCV 2023). A weight matrix w is standardised, each value is replaced by the nearest code, and the result is scaled
back: w' = code(w_hat) * std + mean with w_hat = (w - mean) / (std + 1e-5). Mean and unbiased std are of the whole
matrix.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

BITS = (1, 2, 4, 8)
_ROUNDS = 500
_EPSILON = 1e-5


class CodeBook(NamedTuple):
    """Ascending codes [2**bits] and the thresholds between them [2**bits - 1], for a standard normal weight."""

    codes: Tensor
    thresholds: Tensor


class Packed(NamedTuple):
    """A quantised matrix as it is stored.

    codes: uint8 [ceil(n * bits / 8)], code indices in row-major order, the first value in the lowest bits.
    stats: float32 [2], mean and standard deviation of the latent matrix.
    """

    codes: Tensor
    stats: Tensor


@cache
@torch.inference_mode(mode=False)  # kept tensors are for training too, whoever is the first to ask
def codebook(bits: int) -> CodeBook:
    """The float32 code book of a bit width.

    Each code is the median of the normal distribution between its thresholds, each threshold the midpoint of its
    codes. Exactly 500 rounds from zero define the book: at 8 bits the iteration has not converged by then.
    """
    # Kept for the whole process: on the CPU even if a module on the meta device is the first to ask.
    codes = torch.zeros(2**bits, dtype=torch.float64, device="cpu")
    ends = torch.tensor([0.0, 1.0], dtype=torch.float64, device="cpu")
    for _ in range(_ROUNDS):
        cdf = torch.special.ndtr((codes[:-1] + codes[1:]) / 2)
        cdf = torch.cat([ends[:1], cdf, ends[1:]])
        codes = torch.special.ndtri((cdf[:-1] + cdf[1:]) / 2)
    return CodeBook(codes.float(), ((codes[:-1] + codes[1:]) / 2).float())


def _standardise(weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    mean, std = weight.mean(), weight.std()
    return (weight - mean) / (std + _EPSILON), mean, std


def fake_quantize(weight: Tensor, book: CodeBook) -> Tensor:
    """The matrix that `weight` [out, in] is rounded to, with a straight-through gradient to `weight`.

    The gradient passes the rounding unchanged but keeps flowing through mean and std, as in the source. A value on a
    threshold takes the lower code.
    """
    standard, mean, std = _standardise(weight)
    codes = book.codes[torch.bucketize(standard.detach(), book.thresholds)]
    return (codes + (standard - standard.detach())) * std + mean


def code_bytes(numbers: int, bits: int) -> int:
    """Bytes of the codes of that many weights."""
    return -(-numbers * bits // 8)


def pack(weight: Tensor, bits: int) -> Packed:
    """Quantises a latent matrix [out, in] for storage."""
    standard, mean, std = _standardise(weight.detach().float())
    thresholds = codebook(bits).thresholds.to(standard.device)
    indices = torch.bucketize(standard, thresholds).flatten()
    per_byte = 8 // bits
    indices = torch.nn.functional.pad(indices, (0, -indices.numel() % per_byte)).view(-1, per_byte)
    shifts = torch.arange(per_byte, device=indices.device) * bits
    return Packed((indices << shifts).sum(dim=1).to(torch.uint8), torch.stack([mean, std]))


def unpack(packed: Packed, shape: tuple[int, int], bits: int) -> Tensor:
    """The float32 matrix [out, in] that `packed` stands for: code * std + mean."""
    table = byte_values(packed.stats[None], bits, torch.float32)[0]
    return table[packed.codes.int()].flatten()[: shape[0] * shape[1]].view(shape)


def as_latent(weight: Tensor, stats: Tensor) -> Tensor:
    """A latent matrix for the rounded `weight` [out, in]: stretched to the stored mean and standard deviation.

    It is rounded to `weight` again: at 1, 2 and 4 bits, unless there are only a few values, up to float32; at 8 bits up
    to a thousandth of its norm, by other codes of almost the same values.
    """
    if (weight == weight.flatten()[0]).all():
        return weight
    mean, std = stats.unbind()
    return (weight - weight.mean()) / weight.std() * std + mean


def byte_values(stats: Tensor, bits: int, dtype: torch.dtype) -> Tensor:
    """The weights that each byte of codes stands for, [n, 256, 8 // bits], of n matrices with these stats [n, 2].

    Computed in float32 and rounded to `dtype` once, so that to look a weight up is all that is left to do.
    """
    values = codebook(bits).codes * stats[:, 1:] + stats[:, :1]
    return values.index_select(1, _indices(bits)).to(dtype).view(len(stats), 256, 8 // bits)


@cache
def _indices(bits: int) -> Tensor:
    """The indices of codes that bytes hold, 8 // bits of byte 0, then of byte 1 and so on."""
    shifts = torch.arange(8 // bits, device="cpu") * bits
    indices: Tensor = (torch.arange(256, device="cpu")[:, None] >> shifts) & (2**bits - 1)
    return indices.flatten()
