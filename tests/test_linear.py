"""An update that is written into what a layer gave is the sum that it stands for."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fpet.linear import add_linear, linear

BATCH, TOKENS, CHANNELS, WIDTH, SCALE = 2, 5, 6, 3, 0.25


def tensors(*weight: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = ((BATCH, TOKENS, 2 * CHANNELS), (BATCH, TOKENS, WIDTH), weight)
    return [torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_() for shape in shapes]


def written(y: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    """The update of the last channels, in a copy."""
    y = y.clone()
    part = y.narrow(-1, CHANNELS, CHANNELS)
    assert add_linear(part, x, weight, SCALE).data_ptr() == part.data_ptr()
    return y


@pytest.mark.parametrize("weight", [(CHANNELS, WIDTH), (BATCH, CHANNELS, WIDTH)], ids=["for all", "an image"])
def test_an_update_is_added_to_a_slice_of_channels_and_leaves_the_others(weight: tuple[int, ...]) -> None:
    y, x, matrix = tensors(*weight)
    before, last = y.split(CHANNELS, dim=-1)
    expected = torch.cat([before, last + SCALE * linear(x, matrix)], dim=-1)
    torch.testing.assert_close(written(y, x, matrix), expected)
    assert torch.autograd.gradcheck(written, (y, x, matrix))
