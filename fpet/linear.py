"""Linear maps of adapters, reducers and heads: optionally quantised, optionally one weight per image."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fpet.errors import UnsupportedError
from fpet.quantize import BITS, CodeBook, Packed, as_latent, codebook, fake_quantize, pack, unpack

FULL_PRECISION = 32


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x W^T + b for one task or for a batch in which each image has its own task.

    x: [B, N, in] or [B, in]. weight: [out, in], or [B, out, in] for a weight per image; bias: [out] or [B, out].
    """
    if weight.ndim == 2:
        return F.linear(x, weight, bias)
    if x.ndim == 2:
        return linear(x[:, None], weight, bias)[:, 0]
    y = torch.bmm(x, weight.mT)
    return y if bias is None else y + bias[:, None]


def add_linear(y: Tensor, x: Tensor, weight: Tensor, scale: float) -> Tensor:
    """y + scale * x W^T, written into y, which is returned: one product, and no other pass over the memory of y.

    y: [B, N, out], the fresh output of a layer, which nothing else reads, or a slice of its channels; x: [B, N, in];
    weight: as in `linear`. autocast leaves in-place products alone: x and weight are cast to the dtype of y here.
    """
    x, weight = x.to(y.dtype), weight.to(y.dtype)
    if weight.ndim == 3:
        return y.baddbmm_(x, weight.mT, alpha=scale)
    y.view(-1, y.shape[-1]).addmm_(x.flatten(0, 1), weight.mT, alpha=scale)
    return y


def per_token(vector: Tensor) -> Tensor:
    """A vector per channel [C], or one per image [B, C], in a shape that broadcasts over tokens [B, N, C]."""
    return vector if vector.ndim == 1 else vector[:, None]


class LowBitLinear(nn.Module):
    """A linear map whose weight is used as it is (bits = 32) or rounded to a code book of 1, 2, 4 or 8 bits.

    weight: [out, in]. While training a quantised layer it is the latent matrix, rounded in every forward; after
    `load_packed` it is the rounded matrix itself, so that inference pays nothing. The state dict has the key `rounded`
    if the weight is already rounded. Starts as U(+-1/sqrt(in)).

    Raises:
        UnsupportedError: for any other number of bits, a width below one, or a single weight that is to be rounded.
    """

    def __init__(self, in_features: int, out_features: int, bits: int = FULL_PRECISION, bias: bool = False) -> None:
        super().__init__()
        if bits not in (*BITS, FULL_PRECISION):
            raise UnsupportedError(f"bits = {bits}: weights have 1, 2, 4, 8 or 32 bits")
        if min(in_features, out_features) < 1:
            raise UnsupportedError(f"a linear map from {in_features} to {out_features} features is empty")
        if bits != FULL_PRECISION and in_features * out_features == 1:
            raise UnsupportedError(f"bits = {bits}: a single weight has no standard deviation to be rounded by")
        self.bits = bits
        self.latent = bits != FULL_PRECISION
        bound = 1 / math.sqrt(in_features)
        self.weight = nn.Parameter(torch.empty(out_features, in_features).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.zeros(out_features)) if bias else None
        book = codebook(bits) if self.latent else CodeBook(torch.empty(0), torch.empty(0))
        self.codes: Tensor
        self.thresholds: Tensor
        self.register_buffer("codes", book.codes, persistent=False)
        self.register_buffer("thresholds", book.thresholds, persistent=False)

    def start_at_zero(self) -> None:
        """Initialises the last map of a residual branch: zeros, or close to it where zero has no direction.

        A quantised matrix needs a spread to be standardised: truncated normal, std 1e-3, cut at +-2e-3.
        """
        if self.latent:
            nn.init.trunc_normal_(self.weight, std=1e-3, a=-2e-3, b=2e-3)
        else:
            nn.init.zeros_(self.weight)

    def effective_weight(self) -> Tensor:
        """The matrix that multiplies the input: [out, in], or [B, out, in] where each image has its own.

        Raises:
            UnsupportedError: for a matrix per image that is yet to be rounded; saving and loading a task rounds it.
        """
        if not self.latent:
            return self.weight
        if self.weight.ndim != 2:  # they would be rounded as if they were one
            raise UnsupportedError("weights per image must be rounded: load the tasks from their files")
        return fake_quantize(self.weight, CodeBook(self.codes, self.thresholds))

    def forward(self, x: Tensor) -> Tensor:
        """[B, N, in] -> [B, N, out]."""
        return linear(x, self.effective_weight(), self.bias)

    def packed(self) -> Packed:
        """The quantised weight for storage; only a latent weight can be packed without a second rounding."""
        if not self.latent:
            raise UnsupportedError(
                "a dequantised weight cannot be packed again: give the task's own tensors to save_tensors, or save "
                "what Task.to_train makes"
            )
        return pack(self.weight, self.bits)

    def load_packed(self, packed: Packed, *, latent: bool = False) -> None:
        """Replaces the weight by the stored one, dequantised once; or, to train on, by a latent one (`as_latent`)."""
        rows, columns = self.weight.shape
        weight = unpack(packed, (rows, columns), self.bits)
        with torch.no_grad():
            self.weight.copy_(as_latent(weight, packed.stats, self.bits) if latent else weight)
        self.latent = latent

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if self.bits != FULL_PRECISION and not self.latent:
            destination[f"{prefix}rounded"] = torch.tensor(True)

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, *more: Any) -> None:
        rounded = state_dict.pop(f"{prefix}rounded", None) is not None
        if self.bits != FULL_PRECISION and f"{prefix}weight" in state_dict:
            self.latent = not rounded
        super()._load_from_state_dict(state_dict, prefix, *more)
