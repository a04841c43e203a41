"""ToMe (Bolya et al., ICLR 2023): in every block the r most similar pairs of tokens merge."""

from __future__ import annotations

import torch
from torch import Tensor

from fpet.errors import UnsupportedError
from fpet.reducers.base import BipartiteBlock, BlockReducer, Reducer
from fpet.reducers.matching import cosine_scores, mean_over_heads, merge, most_similar, sizes
from fpet.tokens import Geometry, Layout, Tokens


class ToMeBlock(BipartiteBlock):
    """Merges `r` of the patches at even places into their best match at odd ones; prefix tokens take no part.

    The matching has no gradient. Tokens come out in this order: prefix, the even ones that stayed, the odd ones.
    """

    def __init__(self, layout: Layout, r: int) -> None:
        a, b, _ = layout.by_parity()
        merging = min(r, len(a))
        super().__init__(a, b, layout.unordered(merging))
        self.r = merging
        self.num_prefix_tokens = layout.num_prefix_tokens

    def forward(self, tokens: Tokens, query: Tensor, key: Tensor) -> Tokens:  # noqa: ARG002
        with torch.autocast(tokens.x.device.type, enabled=False):
            scores = cosine_scores(mean_over_heads(key.detach()), self.a, self.b)
            assignment, stay = most_similar(scores, self.r)
            merged = merge(tokens, assignment, self.a, self.b)
            kept = self.a[stay]  # [B, |A| - r]
            return Tokens(self._insert(merged.x, tokens.x, kept), self._insert(sizes(merged), sizes(tokens), kept))

    def _insert(self, merged: Tensor, before: Tensor, kept: Tensor) -> Tensor:
        first = self.num_prefix_tokens
        stayed = before.gather(1, kept[..., None].expand(-1, -1, before.shape[-1]))
        return torch.cat([merged[:, :first], stayed, merged[:, first:]], dim=1)


class ToMe(Reducer):
    """No parameters. 197 tokens become 101 at r = 8 in 12 blocks.

    r: pairs merged in each block, one number for all blocks or one per block; a block merges no more than it has.
    """

    def __init__(self, geometry: Geometry, layout: Layout, *, r: int | list[int] = 8) -> None:
        schedule = [r] * geometry.depth if isinstance(r, int) else r
        if len(schedule) != geometry.depth or min(schedule) < 0:
            raise UnsupportedError(
                f"r = {r}: it is one number from 0, or one a block, of which there are {geometry.depth}"
            )

        def make(index: int, here: Layout) -> BlockReducer:
            return ToMeBlock(here, schedule[index]) if len(here.cells) > 1 and schedule[index] else BlockReducer(here)

        super().__init__(geometry, layout, make)
