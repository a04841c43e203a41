"""LTMP (Bonnaerens & Dambre, 2023): every block learns thresholds of similarity to merge at and importance to prune at.

A threshold lets each image decide how many tokens it keeps. So in training, and in a compiled or exported model, all
tokens stay, and those that have merged away or been pruned are masked: their size is all but zero, and log(size) keeps
them out of attention, means and later reductions. In evaluation they are really left out, up to the longest sequence of
the batch; what pads the shorter ones is masked. An image has the same answer whichever way, up to rounding.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fpet.errors import UnsupportedError
from fpet.linear import per_token
from fpet.reducers.base import BlockReducer, Reducer
from fpet.reducers.matching import mean_over_heads, sizes
from fpet.tokens import PRESENT, Geometry, Layout, Tokens

# A masked token keeps this share of its size: too little to change results, enough for log(size) to have a gradient.
# Added to the share 1 of a present token it is lost in float32.
_MASKED = 1e-10


class LTMPBlock(BlockReducer):
    """Merges by `merge_threshold` [1], then prunes by `prune_threshold` [1].

    Of the patches present, those at even places merge into their most similar one at an odd place, if the cosine of
    their keys, mean over heads, is above the threshold. Importance of a token is the attention that it receives, mean
    over heads and queries; one that others merge into takes their largest. It is compared with the threshold divided
    by the number of tokens at the first block, so that a threshold of one asks for the attention that a token would
    receive if all received the same. Prefix tokens take no part. The most important patch is never pruned: there is no
    mean of no patches.

    The thresholds have a gradient, that of sigmoid((value - threshold) / tau), through the presence of the tokens that
    they decide about; what merging does to the target has none, nor have queries and keys.
    """

    def __init__(self, layout: Layout, tau: float) -> None:
        super().__init__(layout.unordered(merged=0))
        self.num_prefix_tokens = layout.num_prefix_tokens
        self.uniform = 1 / layout.num_tokens
        self.tau = tau
        self.merge_threshold = nn.Parameter(torch.full((1,), 0.9))
        self.prune_threshold = nn.Parameter(torch.zeros(1))

    def forward(self, tokens: Tokens, query: Tensor, key: Tensor) -> Tokens:
        with torch.autocast(tokens.x.device.type, enabled=False):
            size = sizes(tokens)
            weight = size.detach()
            present = weight > PRESENT
            similarity, target = self._best_targets(key.detach(), present)
            merges = self._above(similarity, self.merge_threshold)
            # [B, N, N], a one-hot row for each token that merges.
            batch, length = similarity.shape[:2]
            assignment = similarity.new_zeros(batch, length, length).scatter(2, target, merges.detach())
            attended = importance(query.detach(), key.detach(), weight)
            attended = torch.maximum(attended, (assignment * attended).amax(dim=1)[..., None])
            # Tokens that cannot be pruned have infinite importance.
            eligible = self._eligible(present)
            attended = attended.masked_fill(~eligible, math.inf)
            keeps = self._above(attended, self.prune_threshold.float() * self.uniform)
            # A patch has to stay: the most important of those that have not merged away. It keeps its gradient.
            unmerged = attended.masked_fill(~eligible | (merges.detach() > 0), -math.inf)
            last = eligible & (unmerged == unmerged.amax(dim=1, keepdim=True))
            keeps = keeps + (1 - keeps.detach()) * last
            total = weight + assignment.mT @ weight
            x = torch.baddbmm(tokens.x.float() * weight, assignment.mT, tokens.x.float() * weight) / total
            # Targets grow by a factor, so that the presence of a token stays a factor of its size, with its gradient.
            size = size * (total / weight) * ((1 - merges) * keeps + _MASKED)
            reduced = Tokens(x.to(tokens.x.dtype), size)
        return reduced if self.training or torch.compiler.is_compiling() else shorten(reduced)

    def _eligible(self, present: Tensor) -> Tensor:
        """Patches that are present, bool [B, N, 1]."""
        place = torch.arange(present.shape[1], device=present.device)[:, None]
        return present & (place >= self.num_prefix_tokens)

    def _best_targets(self, key: Tensor, present: Tensor) -> tuple[Tensor, Tensor]:
        """Similarity [B, N, 1] of each token to the best target it may merge into, -inf where there is none, and the
        target's place [B, N, 1]."""
        metric = F.normalize(mean_over_heads(key), dim=-1)
        eligible = self._eligible(present)
        even = (present.cumsum(dim=1) - 1) % 2 == 0  # places are counted among the tokens present
        allowed = (eligible & even) & (eligible & ~even).mT  # [B, N, N], sources by targets
        best = (metric @ metric.mT).masked_fill(~allowed, -math.inf).max(dim=-1, keepdim=True)
        return best.values, best.indices

    def _above(self, value: Tensor, threshold: Tensor) -> Tensor:
        """1 where the value [B, N, 1] is above the threshold and else 0, with the gradient of a sigmoid."""
        difference = value - per_token(threshold.float())
        soft = torch.sigmoid(difference / self.tau)
        return (difference > 0).float() + (soft - soft.detach())


class LTMP(Reducer):
    """Parameters: two thresholds a block. Nothing is pruned at the start.

    target: share of the unreduced network's multiply-accumulates that training aims at, a mean over images; tau: width
    of the sigmoid whose gradient the thresholds have. How many tokens are left depends on the image: `layout_out` is
    the upper bound, all of them.

    The importance needs the attention weights, which fused kernels do not return: they are computed a second time.

    Raises:
        UnsupportedError: if target or tau is out of its range.
    """

    tokens_vary = True
    decays = False  # a threshold of zero merges all that point the same way
    training_only = Reducer.training_only | {"target", "tau"}

    def __init__(self, geometry: Geometry, layout: Layout, *, target: float = 0.75, tau: float = 0.1) -> None:
        if not 0 < target <= 1:
            raise UnsupportedError(f"target = {target}: it is a share of the network's cost, in (0, 1]")
        if not tau > 0:
            raise UnsupportedError(f"tau = {tau}: it is above zero")
        super().__init__(geometry, layout, lambda _, here: LTMPBlock(here, tau))
        self.geometry = geometry
        self.num_tokens = layout.num_tokens
        self.target = target

    def penalty(self, sizes: Sequence[Tensor | None]) -> Tensor:
        """(c - target)^2, [], of the cost c relative to the unreduced network's, mean over the batch."""
        present = [presence(size).sum(dim=1) for size in sizes if size is not None]
        lengths = [torch.full_like(present[0], self.num_tokens), *present]
        cost = torch.stack([self._macs(before, after) for before, after in pairwise(lengths)]).sum(dim=0)
        whole = len(sizes) * self._macs(lengths[0], lengths[0])
        return ((cost / whole).mean() - self.target) ** 2

    def _macs(self, before: Tensor, after: Tensor) -> Tensor:
        """Multiply-accumulates of a block whose attention sees `before` tokens and whose MLP sees `after`."""
        channels, mlp_dim = self.geometry.embed_dim, self.geometry.mlp_dim
        attention = before * 4 * channels**2 + before**2 * 2 * channels
        return attention + after * 2 * channels * mlp_dim


def importance(query: Tensor, key: Tensor, size: Tensor) -> Tensor:
    """Attention received, mean over heads and the queries that are present; float32 [B, N, 1], summing to one.

    query, key: [B, num_heads, N, head_dim]; size: [B, N, 1].
    """
    logits = query.float() @ key.float().mT / math.sqrt(query.shape[-1])
    attention = (logits + size.log().mT[:, None]).softmax(dim=-1).mean(dim=1)  # [B, queries, keys]
    asking = (size > PRESENT).float()
    return attention.mT @ (asking / asking.sum(dim=1, keepdim=True))


def presence(size: Tensor) -> Tensor:
    """1 for a token that is present and about 0 for one that is masked, [B, N, 1], with the gradients of the masks."""
    weight = size.detach()
    return size / torch.where(weight > PRESENT, weight, weight / _MASKED)


def shorten(tokens: Tokens) -> Tokens:
    """Leaves out the masked tokens, up to the longest sequence of the batch; the present ones keep their order.

    What pads the other sequences, at their end, is zero and stays masked.
    """
    size = sizes(tokens)
    present = size > PRESENT
    longest = max(present.sum(dim=(1, 2)).tolist(), default=present.shape[1])  # of no image, all
    order = present.int().argsort(dim=1, descending=True, stable=True)[:, :longest]
    x = (tokens.x * present).gather(1, order.expand(-1, -1, tokens.x.shape[-1]))
    return Tokens(x, size.gather(1, order))
