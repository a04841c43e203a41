"""The interface of token reductions: one module a block, between attention and MLP."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from fpet.errors import UnsupportedError
from fpet.tokens import Geometry, Layout, Tokens


class BlockReducer(nn.Module):
    """One block's token reduction; by default tokens pass as they are.

    layout: of its input tokens, an argument only. layout_out: the layout of its output tokens.
    """

    def __init__(self, layout: Layout) -> None:
        super().__init__()
        self.layout_out = layout

    def forward(self, tokens: Tokens, query: Tensor, key: Tensor) -> Tokens:  # noqa: ARG002
        """Tokens [B, N, C] -> [B, N', C]; query and key are the attention's, [B, num_heads, N, head_dim]."""
        return tokens


class BipartiteBlock(BlockReducer):
    """A reduction that merges tokens at the positions `a` into tokens at the positions `b`, both int64 buffers.

    Raises:
        UnsupportedError: if there is nothing to merge, or nothing to merge into.
    """

    def __init__(self, a: Sequence[int], b: Sequence[int], layout_out: Layout) -> None:
        super().__init__(layout_out)
        if not a or not b:
            raise UnsupportedError(f"{len(a)} patches would merge into {len(b)}: the grid has too few rows or columns")
        self.a: Tensor
        self.b: Tensor
        self.register_buffer("a", torch.tensor(a, dtype=torch.long), persistent=False)
        self.register_buffer("b", torch.tensor(b, dtype=torch.long), persistent=False)


class Reducer(nn.Module):
    """One reduction's modules for a whole network, each made for the layout that the one before it leaves.

    make: (block, counted from 0, layout) -> that block's module. tokens_vary: whether each image decides how many
    tokens are left, so that `layout_out` is an upper bound. mixes, decays, training_only: as those of an adapter.
    """

    tokens_vary: ClassVar[bool] = False
    mixes: ClassVar[bool] = True
    decays: ClassVar[bool] = True
    training_only: ClassVar[frozenset[str]] = frozenset({"bits", "dropout"})

    def __init__(self, geometry: Geometry, layout: Layout, make: Callable[[int, Layout], BlockReducer]) -> None:
        super().__init__()
        blocks: list[BlockReducer] = []
        for index in range(geometry.depth):
            blocks.append(make(index, layout))
            layout = blocks[-1].layout_out
        self.blocks = nn.ModuleList(blocks)
        self.layout_out = layout

    def penalty(self, sizes: Sequence[Tensor | None]) -> Tensor | float:  # noqa: ARG002
        """What training adds to its loss, [], given the sizes [B, N', 1] of the tokens that each block puts out."""
        return 0.0


class ReducerAtBlocks(Reducer):
    """A reduction at one block or several: `make(layout)` there, and nothing at the others.

    Raises:
        UnsupportedError: if a block is not one of the backbone's, or named twice.
    """

    def __init__(
        self, geometry: Geometry, layout: Layout, block: int | Sequence[int], make: Callable[[Layout], BlockReducer]
    ) -> None:
        chosen = {block} if isinstance(block, int) else set(block)
        if not isinstance(block, int) and len(chosen) < len(block):
            raise UnsupportedError(f"block = {block}: a block is named twice")
        if not chosen or not chosen <= set(range(geometry.depth)):
            raise UnsupportedError(f"block = {block}: the backbone's blocks are 0 to {geometry.depth - 1}")
        super().__init__(geometry, layout, lambda index, here: make(here) if index in chosen else BlockReducer(here))
