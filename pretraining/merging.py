"""The backbone's forward in pre-training, in which patches may merge as a token reduction will merge them later."""

from __future__ import annotations

from typing import Any

from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from fpet.adapters.base import BlockAdapter
from fpet.block import BlockParts, adapted_blocks
from fpet.reducers.base import BlockReducer
from fpet.reducers.bdm import MatchingBlock
from fpet.tokens import Layout, Tokens

_PLAIN, _ALWAYS = BlockAdapter(), nn.Identity()


def features(vit: VisionTransformer, views: Tensor, merged_at: int | None) -> Tokens:
    """Views [B, 3, S, S] -> tokens [B, N', C] after the final norm, as timm's `forward_features` where none merge.

    merged_at: the block, from 0, in which half of the patches merge by FPET's matching, without its refinement, which
    a task learns; None for no block. No patch may then have been left out.
    """
    parts: Any = vit
    patches = parts.patch_embed(views)
    tokens = Tokens(parts.norm_pre(parts.patch_drop(parts._pos_embed(patches))), None)
    layout = Layout.raster(parts.num_prefix_tokens, patches.shape[1:3])
    keep = BlockReducer(layout)
    merging = keep if merged_at is None else MatchingBlock(layout, nn.Identity(), stop_gradient=True).eval()
    blocks = (
        BlockParts(block, _PLAIN, merging if index == merged_at else keep, _ALWAYS)
        for index, block in enumerate(parts.blocks)
    )
    *_, tokens = adapted_blocks(blocks, tokens)
    return Tokens(parts.norm(tokens.x), tokens.size)


def pooled(tokens: Tokens, prefix: int) -> tuple[Tensor, Tensor]:
    """The class token and the mean of the patches, [B, C] each: a token counts as often as the patches in it."""
    patches = tokens.x[:, prefix:]
    if tokens.size is None:
        return tokens.x[:, 0], patches.mean(dim=1)
    share = tokens.size[:, prefix:] / tokens.size[:, prefix:].sum(dim=1, keepdim=True)
    return tokens.x[:, 0], (patches * share).sum(dim=1)
