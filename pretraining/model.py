"""The backbone in training: timm's Vision Transformer with a classifier, and initial weights for a short run."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn

from fpet import _torchvision

_torchvision.declare_missing_operators()

import timm  # noqa: E402
from timm.layers import PatchDropout  # noqa: E402
from timm.models.vision_transformer import Attention, VisionTransformer  # noqa: E402

ARCHITECTURES = "vit_tiny_patch16_224", "vit_small_patch16_224", "vit_base_patch16_224"  # the first is embedded
ARGUMENTS: dict[str, Any] = {"img_size": 112, "patch_size": 8}


def create(architecture: str, classes: int) -> VisionTransformer:
    """A backbone with a classifier; it takes images of any side divisible by 8 by resampling its positions."""
    vit: Any = timm.create_model(architecture, num_classes=classes, dynamic_img_size=True, **ARGUMENTS)
    with torch.no_grad():
        rows, columns = vit.patch_embed.grid_size
        vit.pos_embed.zero_()
        vit.pos_embed[0, vit.num_prefix_tokens :] = _sinusoids(rows, columns, vit.embed_dim)
        for block in vit.blocks:
            _mimetic(block.attn)
    return cast(VisionTransformer, vit)


def leave_out(vit: VisionTransformer, part: float) -> None:
    """Makes the model in training ignore a random part of every image's patches."""
    if getattr(vit.patch_drop, "prob", 0.0) != part:
        vit.patch_drop = cast(PatchDropout, PatchDropout(part) if part else nn.Identity())


def without_classifier(architecture: str, vit: VisionTransformer) -> VisionTransformer:
    """A copy of the trained backbone as it is used: at its one image size, without classifier, features of unit scale.

    Thousands of classes make the gains of the last norm grow, to 2.5 in an hour or two. Heads of tasks would learn as
    much faster, and beyond what a few hundred images tell, so the gains are divided by their root mean square, and the
    biases with them: the features are the same up to that factor.
    """
    plain = cast(VisionTransformer, timm.create_model(architecture, num_classes=0, **ARGUMENTS))
    plain.load_state_dict({k: v for k, v in vit.state_dict().items() if not k.startswith("head.")})
    norm = cast(nn.LayerNorm, plain.norm)
    with torch.no_grad():
        scale = norm.weight.square().mean().sqrt()
        norm.weight.div_(scale)
        norm.bias.div_(scale)
    return plain


def _sinusoids(rows: int, columns: int, width: int) -> Tensor:
    """Sines and cosines of both coordinates at `width / 4` wavelengths: [rows * columns, width]."""
    frequency = 10000 ** -torch.linspace(0, 1, width // 4)
    y, x = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
    angles = [coordinate.flatten()[:, None] * frequency for coordinate in (x, y)]
    return torch.cat([wave(angle) for angle in angles for wave in (torch.sin, torch.cos)], dim=1)


def _mimetic(attn: Attention) -> None:
    """Starts attention where pre-trained attention tends to end (Trockman & Kolter 2023, "Mimetic initialization").

    Per head the product of query and key weights is near the identity, and the product of value and output weights
    near its negative; both are factored by singular value decomposition. It saves a short run its first part.
    """
    width, dim = attn.num_heads * attn.head_dim, attn.head_dim
    query, key, value = attn.qkv.weight.split(width)
    for head in range(attn.num_heads):
        rows = slice(head * dim, (head + 1) * dim)
        left, right = _factor(0.7 * torch.randn(width, width) / dim**0.5 + 0.7 * torch.eye(width), dim)
        query[rows], key[rows] = left.T, right
    left, right = _factor(0.4 * torch.randn(width, width) / width**0.5 - 0.4 * torch.eye(width), width)
    attn.proj.weight.copy_(left)
    value.copy_(right)


def _factor(product: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """The best factors [C, rank] and [rank, C] of a matrix [C, C], of equal scale."""
    u, s, vh = torch.linalg.svd(product)
    root = s[:rank].sqrt()
    return u[:, :rank] * root, root[:, None] * vh[:rank]
