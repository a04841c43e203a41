"""Small models with a token reduction, of any grid and prefix."""

from __future__ import annotations

import torch
from torch import nn

from fpet.adapters import build_adapter
from fpet.backbone import Backbone, create_backbone
from fpet.reducers import build_reducer
from fpet.tokens import Layout
from fpet.vit import AdaptedViT

PATCH = 4
PREFIXES: dict[str, tuple[str, dict[str, object], int]] = {
    "class token": ("vit_tiny_patch16_224", {}, 1),
    "class and distillation tokens": ("deit_tiny_distilled_patch16_224", {}, 2),
    "registers": ("vit_tiny_patch16_224", {"reg_tokens": 4}, 5),
    "no prefix": ("vit_tiny_patch16_224", {"class_token": False, "global_pool": "avg"}, 0),
}


def backbone_of(grid: tuple[int, int], prefix: str) -> Backbone:
    """Random weights, two blocks of width 48; grid: rows and columns of patches; prefix: of `PREFIXES`."""
    architecture, arguments, _ = PREFIXES[prefix]
    torch.manual_seed(0)
    size = (grid[0] * PATCH, grid[1] * PATCH)
    small: dict[str, object] = {
        "img_size": size, "patch_size": PATCH, "embed_dim": 48, "depth": 2, "num_heads": 3
    }  # fmt: skip
    return create_backbone(architecture, {**small, **arguments})


def reduced(
    kind: str, arguments: dict[str, object], grid: tuple[int, int] = (14, 14), prefix: str = "class token"
) -> AdaptedViT:
    """A model without an adapter, in evaluation mode."""
    backbone = backbone_of(grid, prefix)
    geometry = backbone.geometry
    reducer = build_reducer(kind, geometry, Layout.of(geometry), arguments)
    return AdaptedViT(backbone, build_adapter("none", geometry, {}), reducer, nn.Identity()).eval()
