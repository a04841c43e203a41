"""One block of the forward: a frozen block of timm seen through an adapter, with a token reduction in its middle."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from fpet.adapters.base import BlockAdapter
from fpet.attention import attend
from fpet.reducers.base import BlockReducer
from fpet.tokens import Tokens


def adapted_block(
    block: Any, adapter: BlockAdapter, reduce: BlockReducer, drop_path: nn.Module, tokens: Tokens
) -> Tokens:
    """timm's `Block`, tokens [B, N, C] -> [B, N', C]; drop_path: what drops its branches in training."""
    x, size = tokens
    x = adapter.enter(x)
    h = block.norm1(x)
    out, query, key = attention(block.attn, adapter, h, size)
    x = x + adapter.attn_branch(drop_path(block.ls1(out)), x, h)
    x, size = reduce(Tokens(x, size), query, key)
    h = block.norm2(x)
    x = x + adapter.mlp_branch(drop_path(block.ls2(mlp(block.mlp, adapter, h))), x, h)
    return Tokens(x, size)


def attention(attn: Any, adapter: BlockAdapter, h: Tensor, size: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Multi-head self-attention over timm's `Attention`, with its linear layers seen through the adapter.

    A token that stands for n patches weighs as n keys: log(size) is added to its attention logits (ToMe's proportional
    attention). h: [B, N, C]; size: [B, N, 1] or None. Returns the output [B, N, C], queries and keys
    [B, num_heads, N, head_dim].
    """
    batch, length, _ = h.shape
    qkv = adapter.qkv(attn.qkv, h).reshape(batch, length, 3, attn.num_heads, attn.head_dim)
    q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
    q, k = attn.q_norm(q), attn.k_norm(k)
    bias = None if size is None else size.log().mT[:, None].to(q.dtype)  # [B, 1, 1, N]
    x = attend(q, k, v, bias)
    x = attn.norm(x.transpose(1, 2).reshape(batch, length, attn.attn_dim))
    return adapter.proj(attn.proj, x), q, k


def mlp(layers: Any, adapter: BlockAdapter, h: Tensor) -> Tensor:
    """timm's `Mlp` [B, N, C] -> [B, N, C], with its linear layers seen through the adapter."""
    hidden = layers.norm(layers.act(adapter.fc1(layers.fc1, h)))
    return adapter.fc2(layers.fc2, hidden)


class DropPath(nn.Module):
    """Stochastic depth: in training a branch is dropped for an image with probability p, else scaled by 1/(1-p)."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        if self.p == 0.0 or not self.training:
            return x
        keep = torch.rand(x.shape[0], 1, 1, dtype=torch.float32, device=x.device) >= self.p
        return x * keep.to(x.dtype) / (1.0 - self.p)
