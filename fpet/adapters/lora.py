"""LoRA on queries and values (Hu et al., ICLR 2022), as tuned in FPET: q += s * U_q D_q h, v += s * U_v D_v h."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from fpet.adapters.base import Adapter, BlockAdapter
from fpet.linear import LowBitLinear
from fpet.tokens import Geometry


class LowRank(nn.Module):
    """h -> U drop(D h), [B, N, C] -> [B, N, C]; D: [dim, C], U: [C, dim], no bias, no scale."""

    def __init__(self, channels: int, dim: int, bits: int, dropout: float) -> None:
        super().__init__()
        self.down = LowBitLinear(channels, dim, bits)
        self.dropout = nn.Dropout(dropout)
        self.up = LowBitLinear(dim, channels, bits)
        self.up.start_at_zero()

    def forward(self, h: Tensor) -> Tensor:
        return cast(Tensor, self.up(self.dropout(self.down(h))))


class LoRABlock(BlockAdapter):
    """Low-rank updates of the query and value rows of the fused qkv layer; keys stay the backbone's."""

    def __init__(self, channels: int, dim: int, scale: float, bits: int, dropout: float) -> None:
        super().__init__()
        self.q = LowRank(channels, dim, bits, dropout)
        self.v = LowRank(channels, dim, bits, dropout)
        self.scale = scale

    def qkv(self, layer: nn.Module, h: Tensor) -> Tensor:
        q, k, v = layer(h).chunk(3, dim=-1)
        return torch.cat([q + self.scale * self.q(h), k, v + self.scale * self.v(h)], dim=-1)


class LoRA(Adapter):
    """Parameters: depth * 4 * embed_dim * dim. At bits < 32 it is Bi-LoRA and its relatives.

    dim: hidden width; scale: s; bits: 1, 2, 4, 8 or 32 a weight; dropout: on the hidden vector, in training.
    """

    foldable = True

    def __init__(
        self, geometry: Geometry, *, dim: int = 8, scale: float = 1.0, bits: int = 32, dropout: float = 0.1
    ) -> None:
        super().__init__(LoRABlock(geometry.embed_dim, dim, scale, bits, dropout) for _ in range(geometry.depth))
