"""Softmax attention of queries to keys, by the faster of two ways."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

# Beyond so many scores in a batch, writing and reading them costs what the faster products save.
_MOST_SCORES = 2**23


def attend(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
    """softmax(q kᵀ / sqrt(head_dim) + bias) v, [B, num_heads, N, head_dim] as each of q, k and v.

    bias: [B, 1, 1, N] or None. As torch's fused kernel computes it, save that for inference in bfloat16 on a CPU the
    scores, unless they are very many, are rounded to bfloat16: there two batched products are faster.
    """
    if not _by_products(q):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
    q_, k_, v_ = (x.flatten(0, 1) for x in (q, k, v))
    scale = q.shape[-1] ** -0.5
    if bias is None:
        scores = torch.baddbmm(q.new_empty(()), q_, k_.mT, beta=0, alpha=scale)  # what beta is 0 for is not read
    else:
        scores = torch.baddbmm(bias.expand(-1, q.shape[1], -1, -1).flatten(0, 1), q_, k_.mT, alpha=scale)
    return torch.bmm(scores.softmax(dim=-1), v_).reshape(v.shape)


def _by_products(q: Tensor) -> bool:
    batch, heads, length, _ = q.shape
    return (
        q.device.type == "cpu"
        and q.dtype == torch.bfloat16
        and not torch.is_grad_enabled()  # the backward pass of the fused kernel keeps no scores
        and batch * heads * length**2 <= _MOST_SCORES
    )
