"""What flows between the blocks: tokens with their sizes, and where on the image they lie."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fpet.errors import UnsupportedError

Cell = tuple[int, int]

# Tokens with a size above it are present: those stand for one patch at least, a masked one for about none.
PRESENT = 0.5


class Tokens(NamedTuple):
    """A batch of token sequences.

    x: [B, N, C] floating, prefix tokens (class, distillation, registers, prompts) first.
    size: [B, N, 1] float32, how many patches each token stands for; None while every token stands for one.
    """

    x: Tensor
    size: Tensor | None

    def lengths(self) -> Tensor:
        """How many tokens each image has, int64 [B]; those that are masked do not count."""
        if self.size is None:
            return torch.full((self.x.shape[0],), self.x.shape[1], device=self.x.device)
        return (self.size > PRESENT).sum(dim=(1, 2))


@dataclass(frozen=True)
class Geometry:
    """The shape of a Vision Transformer, as adapters and reducers need it.

    grid: (rows, columns) of patches; patch_dim: values in a patch, 3 * height * width.
    """

    depth: int
    embed_dim: int
    mlp_dim: int
    num_heads: int
    head_dim: int
    grid: tuple[int, int]
    num_prefix_tokens: int
    patch_dim: int


@dataclass(frozen=True)
class Layout:
    """The order of a token sequence: prefix tokens, then one token a cell.

    Cells are integer lattice coordinates. On the patch grid they are (row, column); a checkerboard split leaves a
    lattice turned by 45 degrees, whose cells are numbered anew so that neighbours again differ by one. Where the order
    of the tokens depends on the image, `ordered` is false and only the number of cells means anything.
    """

    num_prefix_tokens: int
    cells: tuple[Cell, ...]
    ordered: bool = True

    @classmethod
    def of(cls, geometry: Geometry, num_prompts: int = 0) -> Layout:
        """The layout at the first block: raster order after the backbone's prefix tokens and the adapter's prompts."""
        return cls.raster(geometry.num_prefix_tokens + num_prompts, geometry.grid)

    @classmethod
    def raster(cls, num_prefix_tokens: int, grid: tuple[int, int]) -> Layout:
        """All cells of a grid (rows, columns), row by row, after the prefix tokens."""
        rows, columns = grid
        return cls(num_prefix_tokens, tuple((row, column) for row in range(rows) for column in range(columns)))

    @property
    def num_tokens(self) -> int:
        """Length of the sequence, N."""
        return self.num_prefix_tokens + len(self.cells)

    def unordered(self, merged: int) -> Layout:
        """The layout when `merged` cells have merged into others that each image chooses."""
        return Layout(self.num_prefix_tokens, self.cells[merged:], ordered=False)

    def by_parity(self) -> tuple[list[int], list[int], Layout]:
        """As `checkerboard`, but A is the patches at even and B those at odd places of the whole sequence (ToMe)."""
        first, last = self.num_prefix_tokens, self.num_tokens
        even = [i for i in range(first, last) if i % 2 == 0]
        odd = [i for i in range(first, last) if i % 2 == 1]
        return even, odd, Layout(first, tuple(self.cells[i - first] for i in odd), self.ordered)

    def checkerboard(self) -> tuple[list[int], list[int], Layout]:
        """Splits the cells by the parity of their coordinates (FPET, section 4.2).

        Returns the positions in the sequence of the even cells (A, merged away), those of the odd cells (B, kept),
        and the layout that remains when prefix tokens and B survive in their order.

        Raises:
            UnsupportedError: if the tokens have no fixed places.
        """
        if not self.ordered:
            raise UnsupportedError("a checkerboard needs tokens in fixed places, which an earlier reduction has moved")
        even = [i for i, (row, column) in enumerate(self.cells) if (row + column) % 2 == 0]
        odd = [i for i, (row, column) in enumerate(self.cells) if (row + column) % 2 == 1]
        turned = tuple(
            ((row + column - 1) // 2, (row - column - 1) // 2) for row, column in (self.cells[i] for i in odd)
        )
        first = self.num_prefix_tokens
        return (
            [first + i for i in even],
            [first + i for i in odd],
            Layout(self.num_prefix_tokens, turned),
        )
