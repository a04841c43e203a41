"""Pooling: neighbours in a row merge whatever they show (a baseline of FPET, figure 3).

The paper gives no geometry. Here the patches at even and odd columns of a row are pairs; in an odd number of columns
the last stays alone. Sizes are kept as for any merge.
"""

from __future__ import annotations

from collections import defaultdict

import torch
from torch import Tensor

from fpet.errors import UnsupportedError
from fpet.reducers.base import BipartiteBlock, ReducerAtBlocks
from fpet.reducers.matching import sizes
from fpet.tokens import Cell, Geometry, Layout, Tokens


class AveragePoolBlock(BipartiteBlock):
    """Means of pairs of neighbours, weighted by size."""

    def __init__(self, layout: Layout) -> None:
        if not layout.ordered:
            raise UnsupportedError("pooling needs tokens in fixed places, which an earlier reduction has moved")
        pairs: dict[Cell, list[int]] = defaultdict(list)
        for place, (row, column) in enumerate(layout.cells, layout.num_prefix_tokens):
            pairs[row, column // 2].append(place)
        partners = [pair[1] for pair in pairs.values() if len(pair) == 2]
        firsts = [pair[0] for pair in pairs.values()]
        super().__init__(partners, firsts, Layout(layout.num_prefix_tokens, tuple(pairs)))
        targets = [index for index, pair in enumerate(pairs.values()) if len(pair) == 2]
        self.targets: Tensor  # of the positions a, places in b
        self.register_buffer("targets", torch.tensor(targets, dtype=torch.long), persistent=False)

    def forward(self, tokens: Tokens, query: Tensor, key: Tensor) -> Tokens:  # noqa: ARG002
        x, size = tokens.x, sizes(tokens)
        first = x.shape[1] - self.a.shape[0] - self.b.shape[0]
        with torch.autocast(x.device.type, enabled=False):
            total = self._added(size)
            pooled = self._pooled(x, size, total).to(x.dtype)
            return Tokens(torch.cat([x[:, :first], pooled], dim=1), torch.cat([size[:, :first], total], dim=1))

    def _pooled(self, x: Tensor, size: Tensor, total: Tensor) -> Tensor:
        """Tokens [B, N, C] with their sizes [B, N, 1], and those of the pairs [B, |B|, 1] -> the pairs [B, |B|, C]."""
        return self._added(x.float() * size) / total

    def _added(self, values: Tensor) -> Tensor:
        """Values of tokens [B, N, D] -> their sums over each pair, [B, |B|, D]."""
        return values.index_select(1, self.b).index_add(1, self.targets, values.index_select(1, self.a))


class MaxPoolBlock(AveragePoolBlock):
    """The largest value of each channel of pairs of neighbours; sizes as of means."""

    def _pooled(self, x: Tensor, size: Tensor, total: Tensor) -> Tensor:  # noqa: ARG002
        larger = torch.maximum(x[:, self.b[self.targets]], x[:, self.a])
        return x[:, self.b].index_copy(1, self.targets, larger)


class AveragePool(ReducerAtBlocks):
    """No parameters. 197 tokens become 99. block: one index or several, from 0."""

    def __init__(self, geometry: Geometry, layout: Layout, *, block: int | list[int]) -> None:
        super().__init__(geometry, layout, block, AveragePoolBlock)


class MaxPool(ReducerAtBlocks):
    """No parameters. 197 tokens become 99. block: one index or several, from 0."""

    def __init__(self, geometry: Geometry, layout: Layout, *, block: int | list[int]) -> None:
        super().__init__(geometry, layout, block, MaxPoolBlock)
