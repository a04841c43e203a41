"""Softmax attention of queries to keys, by the faster of two ways."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F


def attend(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
    """softmax(q kᵀ / sqrt(head_dim) + bias) v, [B, num_heads, N, head_dim] as each of q, k and v.

    bias: [B, 1, 1, N] or None. As torch's fused kernel computes it, save that in bfloat16 on a CPU the scores are
    rounded to bfloat16.
    """
    if torch.is_autocast_enabled(q.device.type):  # cast once here: autocast does not reach our own backward
        dtype = torch.get_autocast_dtype(q.device.type)
        q, k, v, bias = q.to(dtype), k.to(dtype), v.to(dtype), None if bias is None else bias.to(dtype)
    if not _faster_by_products(q, bias):
        alone = bias is not None and bias.requires_grad and not any(part.requires_grad for part in (q, k, v))
        if alone and not torch.compiler.is_compiling():  # a compiled graph cannot make a tensor require a gradient
            # The backward of a GPU's kernel reads what its forward saves only if q, k or v requires a gradient, also
            # when the bias alone does (pytorch/pytorch issue 148476).
            q = q.detach().requires_grad_()
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
    rows = None if bias is None else bias.expand(-1, q.shape[1], -1, -1).flatten(0, 1)
    by_products = _Products.apply if torch.is_grad_enabled() else _attend
    return cast(Tensor, by_products(q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1), rows)).view(v.shape)


def _faster_by_products(q: Tensor, bias: Tensor | None) -> bool:
    if q.device.type != "cpu" or torch.compiler.is_compiling():
        return False
    # For a bias with a gradient torch has no fused kernel there: it would keep all scores, in float32.
    return q.dtype == torch.bfloat16 or (q.dtype == torch.float32 and bias is not None and bias.requires_grad)


class _Products(torch.autograd.Function):
    """`_attend` with gradients of q, k, v and bias; the backward computes the scores once more, so that none are
    kept."""

    generate_vmap_rule = True  # so that torch.func can give a gradient for each image

    @staticmethod
    def forward(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
        return cast(Tensor, _attend(q, k, v, bias))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor | None, ...], output: Tensor) -> None:  # noqa: ARG004
        """Apart from the forward, as `torch.func` needs it."""
        ctx.save_for_backward(*inputs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, bias = ctx.saved_tensors
        slices = []
        for start, end in _slices(q):
            row = None if bias is None else bias[start:end]
            slices.append(_gradients(grad[start:end], q[start:end], k[start:end], v[start:end], row))
        found = [torch.cat(parts) for parts in zip(*slices, strict=True)]
        return (*found, None)[:4]  # None: the gradient of an absent bias


@torch.jit.script_if_tracing  # type: ignore[untyped-decorator]
def _attend(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
    """Attention of R matrices: q, k, v: [R, N, head_dim]; bias: [R, 1, N] or None.

    TorchScript (`fpet.inference.programs`) reads this function and those that it calls, so that programs have the loop;
    it knows a part of Python only.
    """
    found: list[Tensor] = []
    for start, end in _slices(q):
        row = None if bias is None else bias[start:end]
        found.append(torch.bmm(_weights(q[start:end], k[start:end], row), v[start:end]))
    return torch.cat(found)


def _weights(q: Tensor, k: Tensor, bias: Tensor | None) -> Tensor:
    """Attention weights [R, N, N]: softmax of the scores over the keys."""
    scale = q.shape[-1] ** -0.5
    if bias is None:
        return torch.baddbmm(q.new_empty(()), q, k.mT, beta=0, alpha=scale).softmax(dim=-1)  # beta 0: it is not read
    return torch.baddbmm(bias, q, k.mT, alpha=scale).softmax(dim=-1)


def _gradients(grad: Tensor, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> list[Tensor]:
    """Gradients of q, k, v and, where there is one, bias, from that of the output, [R, N, head_dim]."""
    scale = q.shape[-1] ** -0.5
    weights = _weights(q, k, bias)
    scores = torch._softmax_backward_data(torch.bmm(grad, v.mT), weights, -1, weights.dtype)
    unread = q.new_empty(())
    dq = torch.baddbmm(unread, scores, k, beta=0, alpha=scale)
    dk = torch.baddbmm(unread, scores.mT, q, beta=0, alpha=scale)
    found = [dq, dk, torch.bmm(weights.mT, grad)]
    return found if bias is None else [*found, scores.sum(dim=1, keepdim=True)]


def _slices(q: Tensor) -> list[tuple[int, int]]:
    """(start, end) of slices of the R matrices [R, N, head_dim], each so small that its scores stay in a processor's
    cache between the products that write and read them; one empty slice if R is 0."""
    rows, length = q.shape[0], q.shape[1]
    at_a_time = max(1, (1 << 20) // (length * length))
    return [(start, min(start + at_a_time, rows)) for start in range(0, max(1, rows), at_a_time)]
