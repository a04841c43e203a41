"""AdaptFormer (Chen et al., NeurIPS 2022), as tuned in FPET: x + MLP(norm2 x) + s * U drop(relu(D x))."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from fpet.adapters.base import Adapter, BlockAdapter
from fpet.linear import LowBitLinear, add_linear
from fpet.tokens import Geometry


class AdaptFormerBlock(BlockAdapter):
    """A bottleneck beside the MLP. It reads the residual stream before norm2, after tokens have merged.

    D: [dim, C], U: [C, dim], no bias. The branch is not under stochastic depth.
    """

    def __init__(self, channels: int, dim: int, scale: float, bits: int, dropout: float) -> None:
        super().__init__()
        self.down = LowBitLinear(channels, dim, bits)
        self.dropout = nn.Dropout(dropout)
        self.up = LowBitLinear(dim, channels, bits)
        self.up.start_at_zero()
        self.scale = scale

    def mlp_branch(self, branch: Tensor, x: Tensor, h: Tensor) -> Tensor:  # noqa: ARG002
        hidden = self.dropout(F.relu(self.down(x)))
        return add_linear(branch, hidden, self.up.effective_weight(), self.scale)


class AdaptFormer(Adapter):
    """Parameters: depth * 2 * embed_dim * dim. At bits < 32 it is Bi-AdaptFormer and its relatives.

    dim: hidden width; scale: s; bits: 1, 2, 4, 8 or 32 a weight; dropout: on the hidden vector, in training.
    """

    scaled = ("up.weight",)

    def __init__(
        self, geometry: Geometry, *, dim: int = 8, scale: float = 1.0, bits: int = 32, dropout: float = 0.1
    ) -> None:
        super().__init__(AdaptFormerBlock(geometry.embed_dim, dim, scale, bits, dropout) for _ in range(geometry.depth))
