"""RepAdapter (Luo et al., 2023): a linear bottleneck before qkv and fc1, h + s * (B drop(A h + a) + b).

It has no non-linearity, so it folds into the layer that follows it.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from fpet.adapters.base import Adapter, BlockAdapter
from fpet.errors import UnsupportedError
from fpet.linear import linear
from fpet.tokens import Geometry


class Bottleneck(nn.Module):
    """h + s * (B drop(A h + a) + b), [B, N, C] -> [B, N, C].

    A: [dim, C]; B: [C, dim / groups], whose g-th share of output channels reads the g-th share of the hidden ones.
    """

    def __init__(self, channels: int, dim: int, scale: float, groups: int, dropout: float) -> None:
        super().__init__()
        if dim < 1:
            raise UnsupportedError(f"dim = {dim}: the hidden width is at least 1")
        if groups < 1 or dim % groups or channels % groups:
            raise UnsupportedError(f"groups = {groups} does not divide dim = {dim} and {channels} channels")
        self.a_weight = nn.Parameter(nn.init.xavier_uniform_(torch.empty(dim, channels)))
        self.a_bias = nn.Parameter(torch.zeros(dim))
        self.b_weight = nn.Parameter(torch.zeros(channels, dim // groups))
        self.b_bias = nn.Parameter(torch.zeros(channels))
        self.dropout = nn.Dropout(dropout)
        self.groups = groups
        self.scale = scale

    def forward(self, h: Tensor) -> Tensor:
        hidden = self.dropout(linear(h, self.a_weight, self.a_bias)).chunk(self.groups, dim=-1)
        weights = self.b_weight.chunk(self.groups, dim=-2)
        biases = self.b_bias.chunk(self.groups, dim=-1)
        parts = [linear(*part) for part in zip(hidden, weights, biases, strict=True)]
        return torch.add(h, torch.cat(parts, dim=-1), alpha=self.scale)


class RepAdapterBlock(BlockAdapter):
    """One bottleneck before qkv and, unless `mlp` is off, one before fc1. It changes the keys, and so the matching."""

    def __init__(self, bottleneck: Callable[[], Bottleneck], mlp: bool) -> None:
        super().__init__()
        self.attn = bottleneck()
        self.mlp = bottleneck() if mlp else nn.Identity()

    def qkv(self, layer: nn.Module, h: Tensor) -> Tensor:
        return super().qkv(layer, self.attn(h))

    def fc1(self, layer: nn.Module, h: Tensor) -> Tensor:
        return super().fc1(layer, self.mlp(h))


class RepAdapter(Adapter):
    """Parameters: depth * placements * (embed_dim * dim * (1 + 1 / groups) + dim + embed_dim).

    dim: hidden width; scale: s; groups: of the second map; mlp: also before fc1, not only before qkv.
    """

    foldable = True
    scaled = ("b_weight", "b_bias")

    def __init__(
        self,
        geometry: Geometry,
        *,
        dim: int = 8,
        scale: float = 1.0,
        groups: int = 2,
        mlp: bool = True,
        dropout: float = 0.1,
    ) -> None:
        def bottleneck() -> Bottleneck:
            return Bottleneck(geometry.embed_dim, dim, scale, groups, dropout)

        super().__init__(RepAdapterBlock(bottleneck, mlp) for _ in range(geometry.depth))
