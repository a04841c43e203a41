"""Convpass (Jie & Deng, 2022): s * up(GELU(conv(GELU(down h)))) beside attention and MLP, conv 3 x 3 on the patches."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fpet.adapters.base import Adapter, BlockAdapter
from fpet.linear import LowBitLinear, linear
from fpet.tokens import Geometry


class Bypass(nn.Module):
    """Normalised tokens h [B, N, C] -> [B, N, C], zero at the start.

    down: C -> dim and up: dim -> C, with biases; weight [dim, dim, 3, 3], bias [dim]: of the convolution over the grid
    of patches, whose border is padded with zeros. It starts as the identity. A prefix token is an image of its own of
    one pixel, which meets the centre of the kernel alone.
    """

    def __init__(self, channels: int, grid: tuple[int, int], dim: int, dropout: float) -> None:
        super().__init__()
        self.grid = grid
        self.down = LowBitLinear(channels, dim, bias=True)
        nn.init.xavier_uniform_(self.down.weight)
        self.weight = nn.Parameter(torch.zeros(dim, dim, 3, 3))
        nn.init.eye_(self.weight.data[:, :, 1, 1])
        self.bias = nn.Parameter(torch.zeros(dim))
        self.dropout = nn.Dropout(dropout)
        self.up = LowBitLinear(dim, channels, bias=True)
        self.up.start_at_zero()

    def forward(self, h: Tensor) -> Tensor:
        rows, columns = self.grid
        hidden = F.gelu(self.down(h))
        prefix, patches = hidden.tensor_split([h.shape[1] - rows * columns], dim=1)
        # Written as a linear map of each neighbourhood, so that images of a batch may have weights of their own.
        neighbours = F.unfold(patches.mT.unflatten(-1, self.grid), 3, padding=1).mT  # [B, P, dim * 9]
        patches = linear(neighbours, self.weight.flatten(start_dim=-3), self.bias)
        prefix = linear(prefix, self.weight[..., 1, 1], self.bias)
        return cast(Tensor, self.up(self.dropout(F.gelu(torch.cat([prefix, patches], dim=1)))))


class ConvpassBlock(BlockAdapter):
    """One bypass reads what the attention reads, norm1(x), the other what the MLP reads, norm2(x).

    The bypasses are not under stochastic depth; in the published code each is, by a draw of its own.
    """

    def __init__(self, geometry: Geometry, dim: int, scale: float, dropout: float) -> None:
        super().__init__()
        self.attn = Bypass(geometry.embed_dim, geometry.grid, dim, dropout)
        self.mlp = Bypass(geometry.embed_dim, geometry.grid, dim, dropout)
        self.scale = scale

    def attn_branch(self, branch: Tensor, x: Tensor, h: Tensor) -> Tensor:  # noqa: ARG002
        return branch + self.scale * cast(Tensor, self.attn(h))

    def mlp_branch(self, branch: Tensor, x: Tensor, h: Tensor) -> Tensor:  # noqa: ARG002
        return branch + self.scale * cast(Tensor, self.mlp(h))


class Convpass(Adapter):
    """Parameters: depth * 2 * (2 * embed_dim * dim + 9 * dim^2 + 2 * dim + embed_dim).

    dim: hidden width; scale: s; dropout: on the hidden vector, in training. GELU is exact, where the published code
    has x * sigmoid(1.702 x).
    """

    needs_grid = True
    scaled = ("up.weight", "up.bias")

    def __init__(self, geometry: Geometry, *, dim: int = 8, scale: float = 1.0, dropout: float = 0.1) -> None:
        super().__init__(ConvpassBlock(geometry, dim, scale, dropout) for _ in range(geometry.depth))
