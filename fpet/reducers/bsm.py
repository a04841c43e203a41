"""BSM: ToMe's bipartite soft matching once, at one block, with half of the patches (a baseline of FPET, table 3)."""

from __future__ import annotations

import torch
from torch import Tensor

from fpet.reducers.base import BipartiteBlock, ReducerAtBlocks
from fpet.reducers.matching import assign, cosine_scores, mean_over_heads, merge
from fpet.tokens import Geometry, Layout, Tokens


class SoftMatchingBlock(BipartiteBlock):
    """Merges every patch of A into its best match in B, by cosine of the mean keys, without a gradient."""

    def __init__(self, layout: Layout) -> None:
        super().__init__(*layout.by_parity())

    def forward(self, tokens: Tokens, query: Tensor, key: Tensor) -> Tokens:  # noqa: ARG002
        with torch.autocast(tokens.x.device.type, enabled=False):
            scores = cosine_scores(mean_over_heads(key.detach()), self.a, self.b)
            return merge(tokens, assign(scores, differentiable=False), self.a, self.b)


class BSM(ReducerAtBlocks):
    """No parameters. 197 tokens become 99.

    block: one index or several, from 0.
    """

    def __init__(self, geometry: Geometry, layout: Layout, *, block: int | list[int]) -> None:
        super().__init__(geometry, layout, block, SoftMatchingBlock)
