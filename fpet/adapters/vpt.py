"""VPT (Jia et al., ECCV 2022): learned prompt tokens between the prefix tokens and the patches, no weight changed."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from fpet.adapters.base import Adapter, BlockAdapter
from fpet.errors import UnsupportedError
from fpet.tokens import Geometry


class PromptBlock(BlockAdapter):
    """Puts its prompts [P, C] after the first `position` tokens, in the place of `replaced` tokens that stood there."""

    def __init__(self, prompts: Tensor, position: int, replaced: int, dropout: float) -> None:
        super().__init__()
        self.prompts = nn.Parameter(prompts)
        self.position = position
        self.replaced = replaced
        self.dropout = nn.Dropout(dropout)

    def enter(self, x: Tensor) -> Tensor:
        prompts = self.dropout(self.prompts.expand(x.shape[0], -1, -1)).to(x.dtype)
        before, after = x[:, : self.position], x[:, self.position + self.replaced :]
        return torch.cat([before, prompts, after], dim=1)


def _prompt_blocks(geometry: Geometry, prompts: int, dropout: float, depth: int) -> list[BlockAdapter]:
    if prompts < 1:
        raise UnsupportedError(f"prompts = {prompts}: there is at least one")
    bound = math.sqrt(6 / (geometry.patch_dim + geometry.embed_dim))
    return [
        PromptBlock(
            torch.empty(prompts, geometry.embed_dim).uniform_(-bound, bound),
            geometry.num_prefix_tokens,
            replaced=prompts if block > 0 else 0,
            dropout=dropout,
        )
        for block in range(depth)
    ] + [BlockAdapter() for _ in range(geometry.depth - depth)]


class VPTShallow(Adapter):
    """Prompts enter at the first block and flow through all others. Parameters: prompts * embed_dim."""

    def __init__(self, geometry: Geometry, *, prompts: int = 10, dropout: float = 0.0) -> None:
        super().__init__(_prompt_blocks(geometry, prompts, dropout, depth=1), num_prompts=prompts)


class VPTDeep(Adapter):
    """Every block gets fresh prompts in the place of the last block's. Parameters: depth * prompts * embed_dim."""

    def __init__(self, geometry: Geometry, *, prompts: int = 10, dropout: float = 0.0) -> None:
        super().__init__(_prompt_blocks(geometry, prompts, dropout, depth=geometry.depth), num_prompts=prompts)
