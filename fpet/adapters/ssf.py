"""SSF (Lian et al., NeurIPS 2022): the output y of every norm and linear map becomes gamma * y + beta."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fpet.adapters.channelwise import Channelwise
from fpet.linear import per_token
from fpet.tokens import Geometry

_STD = 0.02


class ScaleShift(nn.Module):
    """y -> gamma * y + beta per channel, [B, N, C]; gamma starts as N(1, 0.02), beta as N(0, 0.02)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.empty(channels).normal_(1.0, _STD))
        self.beta = nn.Parameter(torch.empty(channels).normal_(0.0, _STD))

    def forward(self, y: Tensor) -> Tensor:
        # Under autocast the parameters are float32: without the cast, activations up to the next product would be as
        # well.
        return torch.addcmul(per_token(self.beta), per_token(self.gamma), y).to(y.dtype)


class SSF(Channelwise):
    """Parameters: 4 * embed_dim + depth * 2 * (7 * embed_dim + mlp_dim). It has no arguments.

    Its random start already differs from the backbone, as in the source, which has no weight decay on it.
    """

    decays = False

    def __init__(self, geometry: Geometry) -> None:
        super().__init__(geometry, ScaleShift)
