"""One block of the forward: a frozen block of timm seen through an adapter, with a token reduction in its middle."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fpet.adapters.base import BlockAdapter
from fpet.attention import attend
from fpet.reducers.base import BlockReducer
from fpet.tokens import Tokens

# CUDA's attention kernels need the bias's strides to be multiples of this; otherwise torch copies it in every block.
_ALIGNED = 16


class BlockParts(NamedTuple):
    """timm's `Block` with what acts in it; drop_path: what drops its branches in training."""

    block: Any
    adapter: BlockAdapter
    reduce: BlockReducer
    drop_path: nn.Module


def adapted_blocks(blocks: Iterable[BlockParts], tokens: Tokens) -> Iterator[Tokens]:
    """Tokens [B, N, C] -> those after each block, [B, N', C]."""
    bias = log_size(tokens)
    for parts in blocks:
        size = tokens.size
        tokens = adapted_block(parts, tokens, bias)
        if tokens.size is not size:  # most blocks leave it, and there are small operators to be saved
            bias = log_size(tokens)
        yield tokens


def log_size(tokens: Tokens) -> Tensor | None:
    """What is added to attention logits: log(size), [B, 1, 1, N]; None while every token stands for one patch."""
    x, size = tokens
    if size is None:
        return None
    kind = x.device.type
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype
    bias = size.log().mT[:, None].to(dtype)
    length = bias.shape[-1]
    return F.pad(bias, (0, -length % _ALIGNED))[..., :length] if kind == "cuda" else bias


def adapted_block(parts: BlockParts, tokens: Tokens, bias: Tensor | None) -> Tokens:
    """One block, tokens [B, N, C] -> [B, N', C]; bias: their `log_size`."""
    block, adapter, reduce, drop_path = parts
    x, size = tokens
    x = adapter.enter(x)
    h = block.norm1(x)
    out, query, key = attention(block.attn, adapter, h, bias)
    x = x + adapter.attn_branch(drop_path(block.ls1(out)), x, h)
    x, size = reduce(Tokens(x, size), query, key)
    h = block.norm2(x)
    x = x + adapter.mlp_branch(drop_path(block.ls2(mlp(block.mlp, adapter, h))), x, h)
    return Tokens(x, size)


def attention(attn: Any, adapter: BlockAdapter, h: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Multi-head self-attention over timm's `Attention`, with its linear layers seen through the adapter.

    A token that stands for n patches weighs as n keys: log(size) is added to its attention logits (ToMe's proportional
    attention). h: [B, N, C]; bias: that logarithm, [B, 1, 1, N], or None. Returns the output [B, N, C], queries and
    keys [B, num_heads, N, head_dim].
    """
    batch, length, _ = h.shape
    # Three chunks, not a dimension of three: their gradients are put together in one pass.
    parts = adapter.qkv(attn.qkv, h).chunk(3, dim=-1)
    q, k, v = (part.unflatten(-1, (attn.num_heads, attn.head_dim)).transpose(1, 2) for part in parts)
    q, k = attn.q_norm(q), attn.k_norm(k)
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
        return x * keep.to(x.dtype).div_(1.0 - self.p)
