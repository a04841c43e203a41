"""Bipartite differentiable matching with key refinement (FPET, section 4): half of the patches merge at one block."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fpet.linear import LowBitLinear, linear
from fpet.reducers.base import BipartiteBlock, ReducerAtBlocks
from fpet.reducers.matching import assign, cosine_scores, mean_over_heads, merge
from fpet.tokens import Geometry, Layout, Tokens


class KeyRefinement(nn.Module):
    """K' = K + U drop(relu(D K)), [B, N, D] in float32; D: [dim, head_dim], U: [head_dim, dim], quantised."""

    def __init__(self, head_dim: int, dim: int, bits: int, dropout: float) -> None:
        super().__init__()
        self.down = LowBitLinear(head_dim, dim, bits)
        self.dropout = nn.Dropout(dropout)
        self.up = LowBitLinear(dim, head_dim, bits)
        self.up.start_at_zero()

    def forward(self, key: Tensor) -> Tensor:
        hidden = F.relu(linear(key, self.down.effective_weight().float()))
        return key + linear(self.dropout(hidden), self.up.effective_weight().float())


class MatchingBlock(BipartiteBlock):
    """Merges the even cells of a checkerboard into their best match among the odd cells.

    Prefix tokens take no part. The metric is the mean of the keys over heads, refined, compared by cosine. With
    `stop_gradient` the refinement learns where to merge without disturbing the keys.
    """

    def __init__(self, layout: Layout, refine: nn.Module, stop_gradient: bool) -> None:
        super().__init__(*layout.checkerboard())
        self.refine = refine
        self.stop_gradient = stop_gradient

    def forward(self, tokens: Tokens, query: Tensor, key: Tensor) -> Tokens:  # noqa: ARG002
        # Autocast would compute the scores in half precision, in which neighbours tie.
        with torch.autocast(tokens.x.device.type, enabled=False):
            metric = key.detach() if self.stop_gradient else key
            scores = cosine_scores(self.refine(mean_over_heads(metric)), self.a, self.b)
            return merge(tokens, assign(scores, differentiable=scores.requires_grad), self.a, self.b)


class BDM(ReducerAtBlocks):
    """Parameters: 2 * head_dim * dim. 197 tokens become 99 on a 14 x 14 grid with a class token.

    block: one index or several, from 0 (the paper's "6th layer" of ViT-B is index 6); dim, bits, dropout: of
    the key refinement. refine, stop_gradient: whether there is a key refinement, and a gradient stop before it; the
    paper's ablations leave them out.
    """

    training_only = ReducerAtBlocks.training_only | {"stop_gradient"}

    def __init__(
        self,
        geometry: Geometry,
        layout: Layout,
        *,
        block: int | list[int],
        dim: int = 32,
        bits: int = 1,
        dropout: float = 0.1,
        refine: bool = True,
        stop_gradient: bool = True,
    ) -> None:
        def make(here: Layout) -> MatchingBlock:
            refinement = KeyRefinement(geometry.head_dim, dim, bits, dropout) if refine else nn.Identity()
            return MatchingBlock(here, refinement, stop_gradient)

        super().__init__(geometry, layout, block, make)
