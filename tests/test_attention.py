"""Attention is the same whichever way computes it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from fpet.attention import attend

_BFLOAT16 = 2.0**-8  # relative rounding


def _inputs(dtype: torch.dtype, length: int = 7, *, biased: bool) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Queries, keys and values as they come out of one linear layer, and the bias of tokens that stand for several."""
    generator = torch.Generator().manual_seed(0)
    qkv = torch.randn(2, length, 3, 4, 8, generator=generator).to(dtype)
    q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
    sizes = torch.randint(1, 5, (2, 1, 1, length), generator=generator)
    return q, k, v, sizes.log().to(dtype) if biased else None


def _reference(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
    q, k, v = q.double(), k.double(), v.double()
    scores = torch.einsum("bhnd,bhmd->bhnm", q, k) / q.shape[-1] ** 0.5
    return torch.einsum("bhnm,bhmd->bhnd", (scores if bias is None else scores + bias.double()).softmax(-1), v)


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.bfloat16, 4 * _BFLOAT16)])
@pytest.mark.parametrize("grad", [False, True])
def test_it_is_the_formula(dtype: torch.dtype, tolerance: float, biased: bool, grad: bool) -> None:
    inputs = _inputs(dtype, biased=biased)
    with torch.set_grad_enabled(grad):
        found = attend(*inputs)
    assert found.dtype == dtype
    torch.testing.assert_close(found.double(), _reference(*inputs), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("biased", [False, True])
def test_images_do_not_depend_on_one_another(biased: bool) -> None:
    q, k, v, bias = _inputs(torch.bfloat16, biased=biased)
    with torch.inference_mode():
        both = attend(q, k, v, bias)
        alone = attend(q[1:], k[1:], v[1:], None if bias is None else bias[1:])
    torch.testing.assert_close(both[1:], alone, rtol=_BFLOAT16, atol=_BFLOAT16)


@pytest.mark.parametrize(("length", "held"), [(197, True), (1100, False)])
def test_only_few_scores_are_held(length: int, held: bool) -> None:
    q, k, v, _ = _inputs(torch.bfloat16, length, biased=False)
    with torch.inference_mode():
        fused = F.scaled_dot_product_attention(q, k, v)
        assert attend(q, k, v, None).equal(fused) is not held  # they round differently


@pytest.mark.parametrize(("dtype", "grad"), [(torch.bfloat16, True), (torch.float32, False)])
def test_what_trains_or_is_exact_is_left_to_the_fused_kernel(dtype: torch.dtype, grad: bool) -> None:
    q, k, v, bias = _inputs(dtype, 197, biased=True)
    with torch.set_grad_enabled(grad):
        assert attend(q, k, v, bias).equal(F.scaled_dot_product_attention(q, k, v, attn_mask=bias))


def test_gradients_pass() -> None:
    q, k, v, _ = _inputs(torch.bfloat16, biased=False)
    q = q.clone().requires_grad_()
    attend(q, k, v, None).sum().backward()
    assert q.grad is not None
    assert q.grad.isfinite().all()
