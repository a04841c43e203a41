"""Pre-trained weights through timm's own download, for a user who asks for it; nothing else uses the network."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from fpet.backbone import Backbone, create_backbone
from fpet.backbone_files.timm_models import downloaded_vit, vit_on_meta
from fpet.preprocess import Triple


def download_backbone(
    name: str, arguments: Mapping[str, object] | None = None, normalization: Mapping[str, Triple] | None = None
) -> Backbone:
    """Has timm fetch the weights of one of its models, such as vit_base_patch16_224.augreg_in21k, or read its cache.

    Raises:
        BackboneError: if timm does not know the name, or the weights cannot be had.
        UnsupportedError: if the forward pass does not cover the architecture; then nothing is fetched.
    """
    given = dict(arguments or {})
    grid = vit_on_meta(name, given).patch_embed.grid_size
    vit = downloaded_vit(name, given)
    stored = tuple(
        side // patch
        for side, patch in zip(vit.pretrained_cfg["input_size"][1:], vit.patch_embed.patch_size, strict=True)
    )
    backbone = create_backbone(name, given, vit.state_dict(), normalization)
    return dataclasses.replace(backbone, resampled_from=None if stored == grid else stored)
