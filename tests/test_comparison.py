"""What two forwards may differ by: rounding explains a little, but nothing that is not finite."""

from __future__ import annotations

import math

import pytest
import torch
from small import small_backbone

from fpet.comparison import beyond_rounding, beyond_tolerance, noise


def test_noise_is_as_the_backbone_takes_it_and_always_the_same() -> None:
    vit = small_backbone().vit.bfloat16()
    images = noise(vit, 2)
    assert (images.shape, images.dtype) == ((2, 3, 16, 16), torch.bfloat16)
    assert torch.equal(images, noise(vit, 2))
    assert not torch.equal(images[0], images[1])


@pytest.mark.parametrize(("dtype", "factor"), [(torch.float32, 1.001), (torch.bfloat16, 1.05), (torch.float16, 1.005)])
def test_what_rounding_explains_is_no_difference(dtype: torch.dtype, factor: float) -> None:
    expected = torch.arange(1, 5).to(dtype)
    assert beyond_rounding(expected, expected, dtype) is None
    assert beyond_rounding(expected * factor, expected, dtype) is None
    assert beyond_rounding(expected * 1.25, expected, dtype) == pytest.approx(30**0.5 / 4)


def test_a_tolerance_is_relative_to_the_largest_expected_value() -> None:
    expected = torch.tensor([1.0, 8.0])
    assert beyond_tolerance(expected + 0.25, expected, 1 / 32) is None
    assert beyond_tolerance(expected + torch.tensor([0.5, 0]), expected, 1 / 32) == 0.5


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_what_is_not_finite_differs_from_everything(wrong: float) -> None:
    right, broken = torch.ones(3), torch.tensor([1, wrong, 1])
    for found, expected in ((broken, right), (right, broken), (broken, broken)):
        assert beyond_rounding(found, expected, torch.float32) is not None
        assert beyond_tolerance(found, expected, 0.1) is not None
