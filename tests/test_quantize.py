"""Low-bit weights: published code books, packing, and the gradient through the rounding."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from fpet.errors import UnsupportedError
from fpet.linear import LowBitLinear, linear
from fpet.quantize import BITS, as_latent, codebook, fake_quantize, pack, unpack

POSITIVE_CODES = {
    1: [0.6744898],
    2: [0.377754, 1.26572],
    4: [0.10555, 0.319036, 0.540072, 0.775192, 1.034006, 1.333107, 1.707738, 2.265491],
}


@pytest.mark.parametrize("bits", POSITIVE_CODES)
def test_codebook_has_the_published_codes(bits: int) -> None:
    positive = torch.tensor(POSITIVE_CODES[bits])
    expected = torch.cat([-positive.flip(0), positive])
    torch.testing.assert_close(codebook(bits).codes, expected, rtol=0, atol=1e-5)


def test_eight_bits_stop_after_500_rounds() -> None:
    torch.testing.assert_close(codebook(8).codes[-3:], torch.tensor([2.05421, 2.34872, 2.80951]), rtol=0, atol=1e-5)


def test_a_codebook_is_the_same_whichever_device_is_the_default_when_it_is_made() -> None:
    book = codebook(1)
    codebook.cache_clear()
    with torch.device("meta"):
        again = codebook(1)
    assert again is not book
    assert torch.equal(again.codes, book.codes)
    assert torch.equal(again.thresholds, book.thresholds)


def test_a_codebook_is_for_training_too_whichever_mode_it_is_made_in() -> None:
    codebook.cache_clear()
    with torch.inference_mode():
        codebook(1)
    assert not any(tensor.is_inference() for tensor in codebook(1))


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("shape", [(32, 64), (3, 5)], ids=str)
def test_what_is_stored_is_what_training_computed_with(bits: int, shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    weight = torch.randn(shape) * 0.03 + 0.01
    packed = pack(weight, bits)
    assert packed.codes.shape == (-(-weight.numel() * bits // 8),)
    torch.testing.assert_close(unpack(packed, shape, bits), fake_quantize(weight, codebook(bits)), rtol=0, atol=3e-7)


def test_the_first_value_lies_in_the_lowest_bits() -> None:
    weight = torch.tensor([[1.0, -1.0, -1.0, -1.0, -1.0, 1.0, 1.0, -1.0]])
    assert pack(weight, 1).codes.tolist() == [0b01100001]


def test_a_value_on_a_threshold_takes_the_lower_code() -> None:
    weight = torch.tensor([[1.0, 0.0, -1.0, 0.0]])
    assert pack(weight, 1).codes.tolist() == [0b0001]
    assert (fake_quantize(weight, codebook(1)) > 0).tolist() == [[True, False, False, False]]


WEIGHTS: dict[str, Callable[[], Tensor]] = {
    "normal": lambda: torch.randn(8, 192) * 0.03 + 0.01,
    "a few": lambda: torch.randn(3, 5) * 0.03 + 0.01,
    "uniform": lambda: torch.rand(32, 192),
    "long tails": lambda: torch.distributions.StudentT(3.0).sample((32, 192)),
    "some are large": lambda: torch.randn(32, 192) * torch.where(torch.rand(32, 192) < 0.03, 30.0, 1.0),
    "near the epsilon": lambda: torch.randn(8, 192) * 1e-5,
}


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("weights", WEIGHTS)
def test_a_rounded_matrix_that_trains_on_is_rounded_to_what_it_was(bits: int, weights: str) -> None:
    torch.manual_seed(0)
    weight = WEIGHTS[weights]()
    packed = pack(weight, bits)
    rounded = unpack(packed, (weight.shape[0], weight.shape[1]), bits)
    latent = as_latent(rounded, packed.stats, bits)
    again = fake_quantize(latent, codebook(bits))
    few = weights == "a few" and bits > 1
    assert (again - rounded).norm() < (0.02 if few else 1e-3 if bits == 8 else 1e-6) * rounded.norm()
    if bits < 8 and not few:
        assert torch.equal(pack(latent, bits).codes, packed.codes)


@pytest.mark.parametrize("bits", BITS)
def test_a_matrix_without_spread_stays_as_it_is(bits: int) -> None:
    weight = torch.full((3, 5), 0.5)
    assert torch.equal(as_latent(weight, pack(weight, bits).stats, bits), weight)
    assert torch.equal(unpack(pack(weight, bits), (3, 5), bits), weight)
    assert torch.equal(fake_quantize(weight, codebook(bits)), weight)


def test_a_single_weight_is_not_rounded() -> None:
    assert LowBitLinear(1, 1).weight.shape == (1, 1)
    for bits in BITS:
        with pytest.raises(UnsupportedError, match=f"bits = {bits}: a single weight has no standard deviation"):
            LowBitLinear(1, 1, bits)


def test_gradient_flows_through_mean_and_std() -> None:
    torch.manual_seed(0)
    weight = torch.randn(16, 8, dtype=torch.float64, requires_grad=True)
    upstream = torch.randn(16, 8, dtype=torch.float64)
    book = codebook(1)
    (fake_quantize(weight, book) * upstream).sum().backward()
    mean, std, n = weight.detach().mean(), weight.detach().std(), weight.numel()
    standard = (weight.detach() - mean) / std
    codes = torch.where(standard > 0, book.codes[1], book.codes[0]).double()
    expected = upstream + (upstream * (codes - standard)).sum() * standard / (n - 1)
    assert weight.grad is not None
    torch.testing.assert_close(weight.grad, expected, rtol=1e-4, atol=1e-4)


def test_a_weight_per_image_gives_each_image_its_own_map() -> None:
    torch.manual_seed(0)
    x, weights, biases = torch.randn(3, 7, 4), torch.randn(3, 5, 4), torch.randn(3, 5)
    expected = torch.stack([linear(x[i], weights[i], biases[i]) for i in range(3)])
    torch.testing.assert_close(linear(x, weights, biases), expected)
    torch.testing.assert_close(linear(x[:, 0], weights, biases), expected[:, 0])


def test_a_dequantised_weight_is_not_packed_again() -> None:
    layer = LowBitLinear(8, 4, bits=1)
    layer.load_packed(layer.packed())
    with pytest.raises(UnsupportedError, match="cannot be packed again"):
        layer.packed()


@pytest.mark.parametrize("rounded", [True, False])
def test_a_state_dict_carries_whether_its_weight_is_rounded(rounded: bool) -> None:
    layers = LowBitLinear(8, 4, bits=1), LowBitLinear(8, 4, bits=1)
    layers[not rounded].load_packed(layers[not rounded].packed())
    source, target = layers
    target.load_state_dict(source.state_dict())
    assert target.latent == source.latent == (not rounded)
    torch.testing.assert_close(target.effective_weight(), source.effective_weight(), rtol=0, atol=0)


@pytest.mark.parametrize("bits", [0, 3, 16, 64])
def test_other_bit_widths_are_refused(bits: int) -> None:
    with pytest.raises(UnsupportedError, match=f"bits = {bits}"):
        LowBitLinear(8, 4, bits=bits)
