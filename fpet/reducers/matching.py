"""The tensor operations of bipartite matching: scores, assignment, merge.

Scores and assignment are float32 whatever the model computes in: cosine similarities of neighbouring tokens differ by
less than bfloat16 can resolve, and a tie must still match every token exactly once.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from fpet.tokens import Tokens


def mean_over_heads(key: Tensor) -> Tensor:
    """[B, num_heads, N, head_dim] to [B, N, head_dim] in float32, before a mean in fewer digits could make ties."""
    return key.mean(dim=1, dtype=torch.float32)


def cosine_scores(metric: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Cosine similarity [B, |A|, |B|] of the metric [B, N, D] between the positions a and b, all float32."""
    metric = F.normalize(metric, dim=-1)
    # Not `[:, a]`, whose backward sorts the indices: on a GPU it takes many times as long.
    return metric.index_select(1, a) @ metric.index_select(1, b).mT


def most_similar(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` sources with the best targets, matched, and the places of the others (ToMe).

    scores: [B, |A|, |B|]. Returns a matrix [B, |A|, |B|], float32, with a one-hot row for a source that merges and a
    zero row for one that stays, and the indices [B, |A| - count] into A of those that stay, ascending.
    """
    order = scores.amax(dim=-1).argsort(dim=-1, descending=True, stable=True)
    merges = torch.zeros_like(scores[..., 0]).scatter(1, order[:, :count], 1.0)
    return assign(scores, differentiable=False) * merges[..., None], order[:, count:].sort(dim=-1).values


def assign(scores: Tensor, differentiable: bool) -> Tensor:
    """Matches each source to its best target: one-hot rows [B, |A|, |B|], float32.

    With `differentiable` the value stays exactly one-hot, and the gradient is that of sigmoid(scores - m), m the mean
    of the two best scores of the row (FPET, equations 12 to 14, the straight-through estimator).
    """
    hard = torch.zeros_like(scores).scatter_(-1, scores.argmax(dim=-1, keepdim=True), 1.0)
    if not differentiable:
        return hard
    best = scores.topk(min(2, scores.shape[-1]), dim=-1).values
    soft = torch.sigmoid(scores - best.mean(dim=-1, keepdim=True))
    return hard + (soft - soft.detach())


def sizes(tokens: Tokens) -> Tensor:
    """The tokens' sizes [B, N, 1], float32: ones while nothing has merged."""
    if tokens.size is not None:
        return tokens.size
    return tokens.x.new_ones((tokens.x.shape[0], tokens.x.shape[1], 1), dtype=torch.float32)


def merge(tokens: Tokens, assignment: Tensor, a: Tensor, b: Tensor) -> Tokens:
    """Adds the tokens at a to their targets at b, as means weighted by size; all before the first cell are kept.

    tokens: [B, N, C]; assignment: [B, |A|, |B|]. Returns [B, N - |A|, C]. The sum of sizes and the size-weighted sum
    of tokens are conserved.
    """
    x, size, target = tokens.x, tokens.size, assignment.mT
    from_a, from_b = (x.index_select(1, places).float() for places in (a, b))
    first = x.shape[1] - a.shape[0] - b.shape[0]
    # Sizes apart from tokens: a matrix of both would have C + 1 columns, with which products are slow.
    if size is None:  # each token stands for one patch
        merged_size = 1 + target.sum(dim=-1, keepdim=True)
        kept_size = merged_size.new_ones((x.shape[0], first, 1))
    else:
        size_a, size_b = (size.index_select(1, places) for places in (a, b))
        from_a, from_b = from_a * size_a, from_b * size_b
        merged_size = torch.baddbmm(size_b, target, size_a)
        kept_size = size[:, :first]
    merged = torch.baddbmm(from_b, target, from_a) / merged_size
    return Tokens(
        torch.cat([x[:, :first], merged.to(x.dtype)], dim=1),
        torch.cat([kept_size, merged_size], dim=1),
    )
