"""Attention is the same whichever way computes it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from fpet.attention import attend
from fpet.training.memory import saved_bytes

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


def test_it_is_the_formula_where_already_one_matrix_of_scores_is_large() -> None:
    q, k, v, _ = _inputs(torch.bfloat16, 1100, biased=False)
    inputs = (q[:1, :1], k[:1, :1], v[:1, :1], None)
    with torch.inference_mode():
        found = attend(*inputs)
    torch.testing.assert_close(found.double(), _reference(*inputs), rtol=4 * _BFLOAT16, atol=4 * _BFLOAT16)


@pytest.mark.parametrize("biased", [False, True])
def test_images_do_not_depend_on_one_another(biased: bool) -> None:
    q, k, v, bias = _inputs(torch.bfloat16, biased=biased)
    with torch.inference_mode():
        both = attend(q, k, v, bias)
        alone = attend(q[1:], k[1:], v[1:], None if bias is None else bias[1:])
    torch.testing.assert_close(both[1:], alone, rtol=_BFLOAT16, atol=_BFLOAT16)


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 4e-6), (torch.bfloat16, 8 * _BFLOAT16)])
@pytest.mark.parametrize("length", [7, 700])  # of 700 tokens, two of the eight matrices of scores are held at a time
def test_its_gradients_are_those_of_the_formula(
    length: int, dtype: torch.dtype, tolerance: float, biased: bool
) -> None:
    inputs = [part for part in _inputs(dtype, length, biased=biased) if part is not None]
    direction = torch.randn(inputs[0].shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    found, expected = (
        torch.autograd.grad(way(*leaves, *[None] * (4 - len(leaves))), leaves, direction.to(leaves[0].dtype))
        for way, leaves in ((attend, _leaves(inputs)), (_reference, _leaves([part.double() for part in inputs])))
    )
    for gradient, reference in zip(found, expected, strict=True):
        assert gradient.dtype == dtype
        scale = reference.abs().max().item()
        torch.testing.assert_close(gradient.double(), reference, rtol=tolerance, atol=tolerance * scale)


@pytest.mark.parametrize("biased", [False, True])
def test_transforms_of_functions_have_its_gradient(biased: bool) -> None:
    q, k, v, bias = _inputs(torch.bfloat16, biased=biased)
    found = torch.func.grad(lambda queries: attend(queries, k, v, bias).sum())(q)
    (expected,) = torch.autograd.grad(attend(q.requires_grad_(), k, v, bias).sum(), [q])
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


class _Fused(TorchFunctionMode):
    """Notes whether any of q, k and v had a gradient in the calls of torch's own attention."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[bool] = []

    def __torch_function__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        if func is F.scaled_dot_product_attention:
            self.calls.append(any(part.requires_grad for part in args))
        return func(*args, **(kwargs or {}))


def test_a_bias_alone_with_a_gradient_never_meets_a_fused_kernel() -> None:
    # In float64, in which no processor has a way of its own here, as on a GPU.
    q, k, v, bias = _inputs(torch.float64, biased=True)
    assert bias is not None
    (leaf,) = _leaves([bias])
    with _Fused() as fused:
        found = attend(q, k, v, leaf)
    assert fused.calls == [True]
    (expected,) = torch.autograd.grad(_reference(q, k, v, leaf).square().sum(), [leaf])
    (gradient,) = torch.autograd.grad(found.square().sum(), [leaf])
    torch.testing.assert_close(gradient, expected)
    assert not q.requires_grad


@pytest.mark.parametrize("biased", [False, True])
def test_autocast_gives_it_the_dtype_of_other_products(biased: bool) -> None:
    # An adapter may return more than it got: bfloat16 queries times a scale in float32 are float32.
    leaves = _leaves([part for part in _inputs(torch.float32, biased=biased) if part is not None])
    with torch.autocast("cpu", torch.bfloat16):
        found = attend(*leaves, *[None] * (4 - len(leaves)))
    assert found.dtype == torch.bfloat16
    expected = _reference(*leaves, *[None] * (4 - len(leaves)))
    torch.testing.assert_close(found.double(), expected, rtol=4 * _BFLOAT16, atol=4 * _BFLOAT16)
    for gradient, reference in zip(*(torch.autograd.grad(y.sum(), leaves) for y in (found, expected)), strict=True):
        assert gradient.dtype == torch.float32
        torch.testing.assert_close(gradient, reference, rtol=0.05, atol=0.05)


def _leaves(inputs: list[Tensor]) -> list[Tensor]:
    return [part.detach().requires_grad_() for part in inputs]


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_training_keeps_no_scores(dtype: torch.dtype, biased: bool) -> None:
    inputs = [part.contiguous() for part in _inputs(dtype, 197, biased=biased) if part is not None]
    kept = saved_bytes(lambda: attend(*_leaves(inputs), *[None] * (4 - len(inputs))).sum(), [])
    of_queries = inputs[0].nbytes
    assert kept <= 4.5 * of_queries  # q, k, v, perhaps the output, and one number a query and head
    assert 4.5 * of_queries < 197 * inputs[0][..., 0].nbytes  # the scores


@pytest.mark.parametrize("grad", [False, True])
def test_without_a_gradient_of_the_bias_float32_is_left_to_the_fused_kernel(grad: bool) -> None:
    q, k, v, bias = _inputs(torch.float32, 197, biased=True)
    with torch.set_grad_enabled(grad):
        assert attend(q, k, v, bias).equal(F.scaled_dot_product_attention(q, k, v, attn_mask=bias))


def test_a_bias_alone_with_a_gradient_compiles_to_one_graph() -> None:
    q, k, v, bias = _inputs(torch.float64, biased=True)
    assert bias is not None
    (leaf,) = _leaves([bias])
    compiled = torch.compile(attend, fullgraph=True, backend="aot_eager")
    (expected,) = torch.autograd.grad(attend(q, k, v, leaf).square().sum(), [leaf])
    (gradient,) = torch.autograd.grad(compiled(q, k, v, leaf).square().sum(), [leaf])
    torch.testing.assert_close(gradient, expected)


@pytest.mark.filterwarnings("ignore")  # TorchScript is deprecated
@torch.inference_mode()
def test_a_program_computes_as_many_scores_at_a_time_as_python() -> None:
    """It is made of two images' scores, which fit, and asked for eight's, which do not: those of a million fit."""
    script = torch.jit.trace(attend, _repeated(2), check_trace=False)
    for images in (1, 2, 8):
        inputs = _repeated(images)
        assert torch.equal(script(*inputs), attend(*inputs))


def _repeated(images: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    q, k, v, bias = _inputs(torch.bfloat16, length=300, biased=True)
    assert bias is not None
    repeated = [part.repeat(-(-images // 2), 1, 1, 1)[:images] for part in (q, k, v, bias)]
    return repeated[0], repeated[1], repeated[2], repeated[3]
