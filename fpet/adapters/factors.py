"""What FacT-TT and FacT-TK share: low-rank updates whose outer factors U and V serve every layer (Jie & Deng, 2023)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fpet.adapters.base import BlockAdapter
from fpet.errors import UnsupportedError
from fpet.linear import add_linear, linear
from fpet.tokens import Geometry

ATTENTION = 4  # updates of queries, keys, values and the output projection


class Factors(nn.Module):
    """U [r, C], uniform, and V [C, r], zero: the update of a layer is s * V S U with a small core S of its own."""

    def __init__(self, channels: int, rank: int) -> None:
        super().__init__()
        if rank < 1:
            raise UnsupportedError(f"rank = {rank}: it is at least one")
        bound = channels**-0.5
        self.u = nn.Parameter(torch.empty(rank, channels).uniform_(-bound, bound))
        self.v = nn.Parameter(torch.zeros(channels, rank))


def mlp_ratio(geometry: Geometry) -> int:
    """How many slices of embed_dim make up the hidden layer of the MLP, each of which has an update of its own.

    Raises:
        UnsupportedError: if they do not fill it.
    """
    ratio, rest = divmod(geometry.mlp_dim, geometry.embed_dim)
    if rest:
        raise UnsupportedError(
            f"FacT cuts the MLP's {geometry.mlp_dim} channels into slices of {geometry.embed_dim}, which do not fill it"
        )
    return ratio


class FacTBlock(BlockAdapter):
    """Updates q, k, v, proj, fc1 and fc2. A subclass says what the cores of the block are."""

    def __init__(self, factors: Factors, ratio: int, scale: float, dropout: float) -> None:
        super().__init__()
        self.factors = factors
        self.ratio = ratio
        self.scale = scale
        self.dropout = nn.Dropout(dropout)

    def qkv_cores(self) -> tuple[Tensor, Tensor, Tensor]:
        """S of q, k and v, each [r, r]."""
        raise NotImplementedError

    def proj_core(self) -> Tensor:
        """S of proj, [r, r]."""
        raise NotImplementedError

    def fc1_core(self) -> Tensor:
        """S of fc1, [ratio * r, r]."""
        raise NotImplementedError

    def fc2_core(self) -> Tensor:
        """S of fc2, [r, ratio * r]."""
        raise NotImplementedError

    def _update(self, y: Tensor, inner: Tensor, core: Tensor) -> Tensor:
        """y + s * V drop(S inner), written into y."""
        return add_linear(y, self.dropout(linear(inner, core)), self.factors.v, self.scale)

    def qkv(self, layer: nn.Module, h: Tensor) -> Tensor:
        y, inner = super().qkv(layer, h), linear(h, self.factors.u)
        width = y.shape[-1] // 3
        for place, core in enumerate(self.qkv_cores()):
            self._update(y.narrow(-1, place * width, width), inner, core)
        return y

    def proj(self, layer: nn.Module, h: Tensor) -> Tensor:
        return self._update(super().proj(layer, h), linear(h, self.factors.u), self.proj_core())

    def fc1(self, layer: nn.Module, h: Tensor) -> Tensor:
        y, inner = super().fc1(layer, h), self.dropout(linear(linear(h, self.factors.u), self.fc1_core()))
        width = y.shape[-1] // self.ratio
        for place, part in enumerate(inner.chunk(self.ratio, dim=-1)):
            add_linear(y.narrow(-1, place * width, width), part, self.factors.v, self.scale)
        return y

    def fc2(self, layer: nn.Module, h: Tensor) -> Tensor:
        inner = [linear(part, self.factors.u) for part in h.chunk(self.ratio, dim=-1)]
        return self._update(super().fc2(layer, h), torch.cat(inner, dim=-1), self.fc2_core())
