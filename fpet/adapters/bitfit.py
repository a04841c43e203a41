"""BitFit (Ben Zaken et al., ACL 2022): every bias is trained, and nothing else."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fpet.adapters.channelwise import Channelwise
from fpet.linear import per_token
from fpet.tokens import Geometry


class Shift(nn.Module):
    """y -> y + delta per channel, [B, N, C]: a bias as its difference from the backbone's, starting at zero."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.delta = nn.Parameter(torch.zeros(channels))

    def forward(self, y: Tensor) -> Tensor:
        return (y + per_token(self.delta)).to(y.dtype)  # as SSF's


class BitFit(Channelwise):
    """Parameters: 2 * embed_dim + depth * (7 * embed_dim + mlp_dim). It has no arguments.

    Where the backbone has no bias (a CLIP patch embedding), it gets one.
    """

    def __init__(self, geometry: Geometry) -> None:
        super().__init__(geometry, Shift)
