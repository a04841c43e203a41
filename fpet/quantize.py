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


def as_latent(weight: Tensor, stats: Tensor, bits: int) -> Tensor:
    """A latent matrix for the rounded `weight` [out, in], with the stored mean and standard deviation.

    It is rounded to `weight` again: up to float32, at 8 bits up to a thousandth of its norm, of a few values up to some
    hundredths. But if nearly all values are equal, it may be rounded to another matrix.

    Rounding took from the spread of the values, so all are stretched; or, where that would carry some over a threshold,
    the smallest and the largest alone, which had no bound to be rounded to. The nearer one is returned.
    """
    if (weight == weight.flatten()[0]).all():
        return weight
    values, mean, std = weight.double(), *stats.double().unbind()
    stretched = (values - values.mean()) / values.std()
    latents = [(each * std + mean).float() for each in (stretched, _with_other_ends((values - mean) / std))]
    return min(latents, key=lambda latent: float((fake_quantize(latent, codebook(bits)) - weight).norm()))


def _with_other_ends(values: Tensor) -> Tensor:
    """The values with a smallest and a largest one that make their mean 0 and their unbiased deviation 1, if some do.

    Of n values they are m smallest and k largest ones: m a + k b = s and m a^2 + k b^2 = q, where s and q are what the
    others leave of a sum of 0 and of a sum of squares of n - 1.
    """
    smallest, largest = values == values.min(), values == values.max()
    others = values[~(smallest | largest)]
    m, k = smallest.sum(), largest.sum()
    s, q = -others.sum(), values.numel() - 1 - others.square().sum()
    root = (m * k * ((m + k) * q - s.square())).clamp(min=0).sqrt()
    ends = (s - root / m) / (m + k), (s + root / k) / (m + k)
    return torch.where(smallest, ends[0], torch.where(largest, ends[1], values))


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
