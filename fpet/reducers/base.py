"""The interface of token reductions: one module a block, between attention and MLP."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor, nn

from fpet.tokens import Layout, Tokens


class BlockReducer(nn.Module):
    """One block's token reduction; by default tokens pass as they are."""

    def forward(self, tokens: Tokens, query: Tensor, key: Tensor) -> Tokens:  # noqa: ARG002
        """Tokens [B, N, C] -> [B, N', C]; query and key are the attention's, [B, num_heads, N, head_dim]."""
        return tokens


class Reducer(nn.Module):
    """One reduction's modules for a whole network: one `BlockReducer` a block, and the layout that it leaves."""

    def __init__(self, blocks: Iterable[BlockReducer], layout_out: Layout) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.layout_out = layout_out
