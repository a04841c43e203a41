"""Vision Transformers that timm makes by name and arguments; those that the forward pass does not cover are refused."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import timm
import torch
from timm.layers import LayerNorm, Mlp, PatchEmbed
from timm.models import is_model_pretrained
from timm.models.deit import VisionTransformerDistilled
from timm.models.vision_transformer import Attention, Block, VisionTransformer
from torch import nn

from fpet.backbone_files.description import check_normalization
from fpet.backbone_files.limits import check_depth, check_image_size
from fpet.errors import BackboneError, UnsupportedError
from fpet.preprocess import Triple

# The epsilon of every layer norm: the one choice that timm takes as a class, which a file cannot hold.
NORM_EPS = "norm_eps"
_NAME = 100  # characters of a name that are compared with those that timm has
_RESERVED = {"num_classes", "in_chans", "dynamic_img_size", "dynamic_img_pad", "device", "dtype", "norm_layer"}


def make_vit(architecture: str, arguments: Mapping[str, object], normalization: Mapping[str, Triple]) -> Any:
    """The timm model with its random initialisation, without a classifier; normalization: as of `create_backbone`.

    Raises:
        BackboneError: if timm does not know the name or arguments, or the model is larger than any (see
            `fpet.backbone_files.limits`).
        UnsupportedError: if the forward pass does not cover the architecture.
    """
    if not timm.is_model(architecture):  # other names, such as hf-hub:..., would have timm ask the network
        alike = difflib.get_close_matches(architecture[:_NAME], timm.list_models(module="vision_transformer"), n=3)
        hint = f"; it has {', '.join(alike)}" if alike else ""
        raise BackboneError(f"timm has no model {architecture!r}{hint}")
    known = inspect.signature(VisionTransformer).parameters.keys() - _RESERVED | {NORM_EPS}
    for name in arguments:
        if name not in known:
            raise BackboneError(f"{architecture}: the argument {name!r} is not one that shapes a Vision Transformer")
    check_depth(arguments)
    check_normalization(normalization)
    options = {**_timm_arguments(arguments), "num_classes": 0, "pretrained_cfg_overlay": dict(normalization)}
    try:
        vit = timm.create_model(architecture, pretrained=False, **options)
        if getattr(vit, "dynamic_img_size", False):  # some have it of themselves; then patches come as a grid
            vit = timm.create_model(architecture, pretrained=False, dynamic_img_size=False, **options)
    except Exception as error:  # timm meets wrong arguments with errors of every kind
        raise BackboneError(f"timm cannot make {architecture!r} with {dict(arguments)}: {error}") from error
    refuse_uncovered(vit, architecture)
    check_image_size(vit)
    return vit.float()  # whatever torch makes by default


def refuse_name(path: Path) -> None:
    """Raises BackboneError for what is no file, but the name of a model that timm has."""
    if is_model_pretrained(str(path)) and not path.exists():
        raise BackboneError(
            f"there is no file {path}; that is the name of a model of timm, whose weights it fetches as "
            f"`--backbone timm:{path}`, in Python by download_backbone"
        )


def vit_on_meta(
    architecture: str, arguments: Mapping[str, object], normalization: Mapping[str, Triple] | None = None
) -> Any:
    """The timm model on the meta device: shapes without values. Raises as `make_vit` does."""
    with torch.device("meta"):
        return make_vit(architecture, arguments, normalization or {})


def downloaded_vit(architecture: str, arguments: Mapping[str, object]) -> Any:
    """The timm model, without a classifier, with the weights that timm fetches from its hub or finds in its cache.

    Raises:
        BackboneError: if the weights cannot be had, or do not fit.
    """
    options = _timm_arguments(arguments)
    try:
        # With its classifier: without, timm would load what fits and leave the rest random.
        vit: Any = timm.create_model(architecture, pretrained=True, **options)
    except Exception as error:  # of the network, of the hub's client, or of weights that do not fit
        raise BackboneError(f"timm cannot get the weights of {architecture}: {' '.join(str(error).split())}") from error
    vit.reset_classifier(0)
    return vit


def _timm_arguments(arguments: Mapping[str, object]) -> dict[str, Any]:
    """What `timm.create_model` takes for arguments as a file or a command line holds them.

    Raises:
        BackboneError: for an epsilon that no layer norm has, or a text for an image size.
    """
    options = dict(arguments)
    if isinstance(options.get("img_size"), str):
        raise BackboneError(f"img_size = {options['img_size']!r}: give a number, or height+width as in 224+448")
    if NORM_EPS in options:
        eps = options.pop(NORM_EPS)
        if not isinstance(eps, float) or not 0 < eps < 1:
            raise BackboneError(f"{NORM_EPS} = {eps!r}: it should be a number above 0 and below 1")
        options["norm_layer"] = functools.partial(LayerNorm, eps=eps)
    return options


def refuse_uncovered(vit: Any, architecture: str) -> None:
    """Raises UnsupportedError, naming the part, for a model whose blocks the forward pass does not cover."""
    if type(vit) not in (VisionTransformer, VisionTransformerDistilled):
        raise UnsupportedError(f"{architecture} is a {type(vit).__name__}; covered are plain Vision Transformers")
    if not len(vit.blocks):
        raise UnsupportedError(f"{architecture} without a block is not covered")
    for kind, parts in (
        (PatchEmbed, [vit.patch_embed]),
        (Block, vit.blocks),
        (Attention, (block.attn for block in vit.blocks)),  # only blocks of that type are known to have one
        (Mlp, (block.mlp for block in vit.blocks)),
    ):
        for part in parts:
            if type(part) is not kind:
                raise UnsupportedError(f"{architecture} has a {type(part).__name__}; covered is timm's {kind.__name__}")
    if any(block.attn.gate is not None for block in vit.blocks):
        raise UnsupportedError(f"{architecture} gates its attention, which is not covered")
    if any(block.attn.num_heads < 1 for block in vit.blocks):
        raise UnsupportedError(f"{architecture} with {vit.blocks[0].attn.num_heads} heads is not covered")
    if hasattr(vit, "head_dist") and vit.no_embed_class:  # timm makes positions of both tokens regardless
        raise UnsupportedError(f"{architecture} with no_embed_class is not covered, nor does it run in timm")
    if not isinstance(vit.patch_embed.norm, nn.Identity):
        raise UnsupportedError(f"{architecture} normalises its patch embeddings, which is not covered")
    if vit.attn_pool is not None or vit.global_pool not in ("token", "avg"):
        raise UnsupportedError(f"{architecture} pools by {vit.global_pool!r}; covered are 'token' and 'avg'")
    if vit.patch_embed.grid_size is None:
        raise UnsupportedError(f"{architecture} takes images of any size; give img_size")
    if names := sorted(dict(vit.named_buffers()).keys() - vit.state_dict().keys()):
        said = ", ".join(map(repr, names))
        raise UnsupportedError(f"{architecture} keeps {said} out of its weights, which is not covered")
