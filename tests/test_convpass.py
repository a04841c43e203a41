"""Convpass against a plain convolution of an image."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fpet.adapters.convpass import Bypass, ConvpassBlock
from fpet.methods import VIT_BASE

CHANNELS, DIM = 12, 4


def random_bypass(grid: tuple[int, int]) -> Bypass:
    torch.manual_seed(0)
    bypass = Bypass(CHANNELS, grid, DIM, dropout=0.1).eval()
    for parameter in bypass.parameters():
        nn.init.normal_(parameter, std=0.5)
    return bypass


def on_an_image(bypass: Bypass, h: Tensor) -> Tensor:
    """down, conv2d and up of an image [B, C, rows, columns], each a convolution."""

    def pointwise(layer: nn.Module, x: Tensor) -> Tensor:
        return F.conv2d(x, layer.get_parameter("weight")[..., None, None], layer.get_parameter("bias"))

    hidden = F.gelu(pointwise(bypass.down, h))
    hidden = F.gelu(F.conv2d(hidden, bypass.weight, bypass.bias, padding=1))
    return pointwise(bypass.up, hidden)


@pytest.mark.parametrize("num_prefix", [0, 1, 5])
@pytest.mark.parametrize("grid", [(4, 4), (3, 5), (1, 7)], ids=str)
def test_it_is_a_convolution_of_the_grid(grid: tuple[int, int], num_prefix: int) -> None:
    rows, columns = grid
    bypass = random_bypass(grid)
    h = torch.randn(2, num_prefix + rows * columns, CHANNELS)
    with torch.inference_mode():
        out = bypass(h)
        image = on_an_image(bypass, h[:, num_prefix:].mT.reshape(2, CHANNELS, rows, columns))
        torch.testing.assert_close(out[:, num_prefix:], image.flatten(2).mT)
        for i in range(num_prefix):
            pixel = on_an_image(bypass, h[:, i, :, None, None])
            torch.testing.assert_close(out[:, i], pixel[..., 0, 0])


def test_it_starts_at_zero_with_an_identity_inside() -> None:
    bypass = Bypass(CHANNELS, (3, 3), DIM, dropout=0.0)
    h = torch.randn(2, 10, CHANNELS)
    assert torch.equal(bypass(h), torch.zeros(2, 10, CHANNELS))
    nn.init.normal_(bypass.up.weight)
    expected = F.linear(F.gelu(F.gelu(F.linear(h, bypass.down.weight))), bypass.up.weight)
    torch.testing.assert_close(bypass(h), expected)


def test_each_branch_has_a_bypass_of_the_normalised_tokens() -> None:
    torch.manual_seed(0)
    block = ConvpassBlock(VIT_BASE, dim=2, scale=0.5, dropout=0.1).eval()
    for parameter in block.parameters():
        nn.init.normal_(parameter)
    branch, x, h = torch.randn(3, 1, 197, 768).unbind()
    with torch.inference_mode():
        torch.testing.assert_close(block.attn_branch(branch, x, h), branch + 0.5 * block.attn(h))
        torch.testing.assert_close(block.mlp_branch(branch, x, h), branch + 0.5 * block.mlp(h))


def test_images_of_a_batch_may_have_weights_of_their_own() -> None:
    first, second, both = (random_bypass((3, 5)) for _ in range(3))
    with torch.no_grad():
        for parameter in second.parameters():
            parameter.mul_(-1)
    for name in [name for name, _ in both.named_parameters()]:
        owner, _, attribute = name.rpartition(".")
        pair = torch.stack([first.get_parameter(name), second.get_parameter(name)])
        setattr(both.get_submodule(owner), attribute, nn.Parameter(pair))
    h = torch.randn(2, 16, CHANNELS)
    with torch.inference_mode():
        expected = torch.cat([first(h[:1]), second(h[1:])])
        torch.testing.assert_close(both(h), expected)
