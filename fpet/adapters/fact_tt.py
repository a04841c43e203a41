"""FacT-TT (Jie and Deng, AAAI 2023): every weight's update is s * V S U, S a small matrix of its own."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fpet.adapters.base import Adapter
from fpet.adapters.factors import FacTBlock, Factors, mlp_ratio
from fpet.tokens import Geometry


class FacTTTBlock(FacTBlock):
    """Cores: S_q, S_k, S_v, S_o [r, r], S_1 [ratio * r, r], S_2 [r, ratio * r]; all start uniform."""

    def __init__(self, factors: Factors, ratio: int, scale: float, dropout: float) -> None:
        super().__init__(factors, ratio, scale, dropout)
        rank = factors.u.shape[0]
        self.s_q, self.s_k, self.s_v, self.s_o = (_core(rank, rank) for _ in range(4))
        self.s_1, self.s_2 = _core(ratio * rank, rank), _core(rank, ratio * rank)

    def qkv_cores(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.s_q, self.s_k, self.s_v

    def proj_core(self) -> Tensor:
        return self.s_o

    def fc1_core(self) -> Tensor:
        return self.s_1

    def fc2_core(self) -> Tensor:
        return self.s_2


class FacTTT(Adapter):
    """Parameters: 2 * embed_dim * rank + depth * (4 + 2 * ratio) * rank^2, ratio = mlp_dim / embed_dim.

    rank: r; scale: s; dropout: after each core, in training.
    """

    foldable = True
    scaled = ("factors.v",)

    def __init__(self, geometry: Geometry, *, rank: int = 16, scale: float = 1.0, dropout: float = 0.1) -> None:
        factors = Factors(geometry.embed_dim, rank)
        ratio = mlp_ratio(geometry)
        super().__init__(FacTTTBlock(factors, ratio, scale, dropout) for _ in range(geometry.depth))


def _core(rows: int, columns: int) -> nn.Parameter:
    bound = columns**-0.5
    return nn.Parameter(torch.empty(rows, columns).uniform_(-bound, bound))
