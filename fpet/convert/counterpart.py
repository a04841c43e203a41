"""Whether transformers has a model that computes what a backbone does: the names of its layers alone do not say so."""

from __future__ import annotations

from typing import Any

from torch import nn

from fpet.backbone import Backbone
from fpet.errors import UnsupportedError


def foreign_part(backbone: Backbone) -> str:
    """What the backbone has, or lacks, unlike any ViT or DeiT of transformers; empty if there is nothing."""
    vit: Any = backbone.vit

    def any_of(*names: str) -> bool:
        found = (block.get_submodule(name) for block in vit.blocks for name in names)
        return not all(isinstance(part, nn.Identity) for part in found)

    parts = {
        f"pools by {vit.global_pool!r}": vit.global_pool != "token",  # as it does without a class token
        "has several register tokens": vit.num_reg_tokens > 1,
        "has a norm before its blocks": not isinstance(vit.norm_pre, nn.Identity),
        "has no norm behind its blocks": isinstance(vit.norm, nn.Identity),  # but behind its pooling, or nowhere
        "scales what its layers add": any_of("ls1", "ls2"),
        "has a norm within its attention": any_of("attn.q_norm", "attn.k_norm", "attn.norm"),
        "has a norm within its MLPs": any_of("mlp.norm"),
    }
    return next((what for what, there in parts.items() if there), "")


def refuse_without_counterpart(backbone: Backbone) -> None:
    """Raises UnsupportedError, naming the part, if transformers has no model that computes what the backbone does."""
    if part := foreign_part(backbone):
        raise UnsupportedError(
            f"{backbone.architecture} {part}, unlike any ViT or DeiT of transformers: under its names the updates "
            "would act on another model; under timm's they are covered"
        )
