"""FacT-TK (Jie and Deng, AAAI 2023): the cores of all updates are mixed from one tensor, S = sum_j C[:, :, j] P[j].

In the published code an update multiplies row vectors, (U h) S; here S is transposed where it is made. It cuts the
cores of fc1 and fc2 from a [r, r, ratio] tensor whose last two axes it flattens together, so slice c of the MLP uses
columns c * r to (c + 1) * r of them. Both are kept, since weights are trained with them.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fpet.adapters.base import Adapter
from fpet.adapters.factors import ATTENTION, FacTBlock, Factors, mlp_ratio
from fpet.tokens import Geometry


class Core(nn.Module):
    """C [r, r, r] and P [r, slots], shared by all blocks; slot by slot a matrix [r, r]."""

    def __init__(self, rank: int, slots: int) -> None:
        super().__init__()
        self.c = nn.Parameter(nn.init.xavier_uniform_(torch.empty(rank, rank, rank)))
        self.p = nn.Parameter(nn.init.xavier_uniform_(torch.empty(rank, slots)))

    def slots(self, first: int, count: int) -> Tensor:
        """Slots `first` to `first + count`, as [r, r, count], or [B, r, r, count] for a core per image."""
        return torch.einsum("...abj,...jk->...abk", self.c, self.p[..., first : first + count])


class FacTTKBlock(FacTBlock):
    """Reads its own 4 + 2 * ratio slots of the shared core: q, k, v, proj, then those of fc1, then those of fc2."""

    def __init__(self, factors: Factors, core: Core, block: int, ratio: int, *, scale: float, dropout: float) -> None:
        super().__init__(factors, ratio, scale, dropout)
        self.core = core
        self.first = block * (ATTENTION + 2 * ratio)

    def qkv_cores(self) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = self._slots(0, 3).unbind(dim=-1)
        return q.mT, k.mT, v.mT

    def proj_core(self) -> Tensor:
        return self._slots(3, 1).squeeze(-1).mT

    def fc1_core(self) -> Tensor:
        return self._slots(ATTENTION, self.ratio).flatten(start_dim=-2).mT  # from [r, r * ratio]

    def fc2_core(self) -> Tensor:
        return self._slots(ATTENTION + self.ratio, self.ratio).flatten(start_dim=-2)

    def _slots(self, offset: int, count: int) -> Tensor:
        return self.core.slots(self.first + offset, count)


class FacTTK(Adapter):
    """Parameters: 2 * embed_dim * rank + rank^3 + depth * (4 + 2 * ratio) * rank, ratio = mlp_dim / embed_dim.

    rank: r; scale: s; dropout: after each core, in training.
    """

    foldable = True
    scaled = ("factors.v",)

    def __init__(self, geometry: Geometry, *, rank: int = 16, scale: float = 1.0, dropout: float = 0.1) -> None:
        factors = Factors(geometry.embed_dim, rank)
        ratio = mlp_ratio(geometry)
        core = Core(rank, geometry.depth * (ATTENTION + 2 * ratio))
        super().__init__(
            FacTTKBlock(factors, core, block, ratio, scale=scale, dropout=dropout) for block in range(geometry.depth)
        )
