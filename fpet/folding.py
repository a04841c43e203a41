"""Writes a foldable adapter into a copy of the backbone's weights: no overhead is left.

One function serves every method. A site that is affine in its input is read off by probing it with the zero vector
and the unit vectors, in float64; nothing here knows a method's formula.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fpet.adapters import ADAPTERS
from fpet.adapters.base import Adapter, BlockAdapter, why_not_folded
from fpet.adapters.none import LinearProbe
from fpet.backbone_files.described import fingerprint
from fpet.comparison import beyond_rounding, noise
from fpet.copies import sharing_tensors
from fpet.ends import norms_pooled
from fpet.errors import UnsupportedError
from fpet.tokens import Layout
from fpet.vit import AdaptedViT

# One site of an adapter as a function: the frozen layer and its input -> the adapted output.
Site = Callable[[nn.Module, Tensor], Tensor]


def fold(model: AdaptedViT) -> AdaptedViT:
    """The same function of images, with no adapter: its weights are in a copy of the backbone.

    Tensors that the adapter leaves alone are shared with the original, which is not changed. The copy has a fingerprint
    of its own, so that no task of the original is built on it by mistake. It is in evaluation mode, whatever the
    original is in.

    Raises:
        UnsupportedError: if the adapter is not affine at its sites or adds tokens, or the backbone has no position
            embeddings, or no final norm, where the adapter does.
    """
    if not model.adapter.foldable:
        raise UnsupportedError(
            f"{type(model.adapter).__name__} does not fold: {why_not_folded(model.adapter)}; train with an adapter "
            f"that folds: {', '.join(_foldable())}"
        )
    model = model.in_evaluation()
    backbone = model.backbone
    vit: Any = sharing_tensors(backbone.vit)
    adapter = copy.deepcopy(model.adapter).double()
    with torch.no_grad(), torch.autocast(backbone.device.type, enabled=False):
        for block, acting in zip(vit.blocks, adapter.blocks, strict=True):
            layers = {"qkv": block.attn.qkv, "proj": block.attn.proj, "fc1": block.mlp.fc1, "fc2": block.mlp.fc2}
            for name, layer in layers.items():
                if getattr(type(acting), name) is not getattr(BlockAdapter, name):
                    _fold_linear(layer, getattr(acting, name))
        if type(adapter).patch_embed is not Adapter.patch_embed:
            _fold_convolution(vit, adapter.patch_embed)
        if type(adapter).pos_embed is not Adapter.pos_embed:
            _fold_positions(vit, adapter.pos_embed, Layout.of(backbone.geometry).num_tokens)
        if type(adapter).norm is not Adapter.norm:
            _fold_norm(vit.fc_norm if norms_pooled(vit) else vit.norm, adapter.norm)
    folded = dataclasses.replace(backbone, vit=vit, fingerprint=fingerprint(vit))
    same = AdaptedViT(folded, LinearProbe(backbone.geometry), model.reducer, model.head).eval()
    _compare(same.unreduced(), model.unreduced())
    return same


def _foldable() -> list[str]:
    """The kinds of adapters that fold, sorted."""
    found = []
    for kind in sorted(ADAPTERS):
        with suppress(UnsupportedError):  # a package that cannot be loaded is not what is wrong here
            if ADAPTERS[kind].foldable:
                found.append(kind)
    return found


def _compare(folded: AdaptedViT, model: AdaptedViT) -> None:
    """Raises UnsupportedError if they differ on an image, as when an adapter says that it folds and does not."""
    image = noise(model.vit)
    with torch.inference_mode(), torch.autocast(image.device.type, enabled=False):
        expected = model.features(image)
        difference = beyond_rounding(folded.features(image), expected, image.dtype)
    if not expected.isfinite().all():
        raise UnsupportedError("the task cannot be folded: the model's answer to noise is not finite")
    if difference is not None:
        raise UnsupportedError(
            f"{type(model.adapter).__name__} does not fold, though it says so: the folded model's answer differs by "
            f"{difference:.2g} from one of {expected.float().norm().item():.2g}"
        )


def _affine(site: Callable[[Tensor], Tensor], channels: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """M [out, in] and c [out] of an affine map [B, N, in] -> [B, N, out]."""
    eye = torch.eye(channels, dtype=torch.float64, device=device)[None]
    shift = site(torch.zeros_like(eye[:, :1]))[0, 0]
    return (site(eye)[0] - shift).mT.contiguous(), shift


def _fold_linear(layer: nn.Linear, site: Site) -> None:
    double = copy.deepcopy(layer).double()
    _replace(layer, *_affine(lambda h: site(double, h), layer.in_features, layer.weight.device))


def _fold_convolution(vit: Any, site: Site) -> None:
    """The patch embedding, whose site is probed with images of a single patch.

    Where it has no bias, as in CLIP, the position embeddings of the patches take it: stock timm can give it none.
    """
    layer = vit.patch_embed
    double = copy.deepcopy(layer).double()
    double.strict_img_size = False
    patch = layer.proj.weight.shape[1:]

    def embed(rows: Tensor) -> Tensor:
        """Flat patches [1, n, patch_dim] -> [1, n, C]."""
        return site(double, rows[0].unflatten(-1, patch)).transpose(0, 1)

    weight, bias = _affine(embed, patch.numel(), layer.proj.weight.device)
    if layer.proj.bias is None and vit.pos_embed is not None:
        prefix = vit.pos_embed.shape[1] - layer.num_patches
        vit.pos_embed = _sum(vit.pos_embed, F.pad(bias.expand(1, layer.num_patches, -1), (0, 0, prefix, 0)))
        bias = torch.zeros_like(bias)
    _replace(layer.proj, weight.view_as(layer.proj.weight), bias)


def _fold_positions(vit: Any, site: Callable[[Callable[[Tensor], Tensor], Tensor], Tensor], num_tokens: int) -> None:
    """The position embeddings, and the prefix tokens without one; their site adds a vector at each place."""
    if vit.pos_embed is None:
        raise UnsupportedError("the backbone has no position embeddings, so those of the adapter do not fold")
    places = vit.pos_embed.new_zeros((1, num_tokens, vit.embed_dim), dtype=torch.float64)
    added = site(lambda x: x, places)
    without, first = num_tokens - vit.pos_embed.shape[1], 0  # so many prefix tokens have no position embedding
    for name in ("cls_token", "dist_token", "reg_token"):
        token = getattr(vit, name, None)
        if token is not None and first < without:
            setattr(vit, name, _sum(token, added[:, first : first + token.shape[1]]))
            first += token.shape[1]
    vit.pos_embed = _sum(vit.pos_embed, added[:, without:])


def _sum(weight: Tensor, change: Tensor) -> nn.Parameter:
    return nn.Parameter((weight + change).to(weight.dtype), requires_grad=False)


def _fold_norm(layer: nn.Module, site: Site) -> None:
    """The final norm, whose site acts on each channel that the layer puts out."""
    if not isinstance(layer, nn.LayerNorm):
        raise UnsupportedError("the backbone has no final norm, so the adapter's map there does not fold")
    weight, bias = _affine(lambda y: site(nn.Identity(), y), layer.weight.shape[0], layer.weight.device)
    scale = weight.diagonal()
    _replace(layer, scale * layer.weight.double(), scale * layer.bias.double() + bias)


def _replace(layer: nn.Linear | nn.Conv2d | nn.LayerNorm, weight: Tensor, bias: Tensor) -> None:
    """Gives the layer tensors of its own; one that had no bias and needs none stays without."""
    dtype = layer.weight.dtype
    layer.weight = nn.Parameter(weight.to(dtype), requires_grad=False)
    if layer.bias is not None or bias.any():
        layer.bias = nn.Parameter(bias.to(dtype), requires_grad=False)
