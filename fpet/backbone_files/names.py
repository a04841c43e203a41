"""Weights as they lie in a file -> weights as timm's model takes them: renamed, and positions resampled."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import timm
from timm.layers import resample_abs_pos_embed
from timm.models import clean_state_dict
from timm.models.vision_transformer import checkpoint_filter_fn
from torch import Tensor

from fpet.backbone_files.flax import from_flax, is_flax
from fpet.errors import BackboneError, UnsupportedError

Grid = tuple[int, int]

_CLASSIFIERS = ("head.", "head_dist.")
_BLOCKS = re.compile(r"((?:[^.]+\.)*?)blocks\.\d+\.")  # what is before the dots of the first blocks
_TRANSFORMERS = "embeddings.cls_token"  # alone, or behind the name of the model and a dot


def fit_names(state: Mapping[str, Tensor], vit: Any, grid: Grid | None = None) -> tuple[dict[str, Tensor], Grid | None]:
    """Fits a file's weights to a model that timm has made on the meta device, which is changed.

    grid: (rows, columns) of the positions in the file, whose names are then timm's; None for a foreign file, whose
    names are translated (original ViT, DINOv2, DeiT-III and CLIP checkpoints among them, and models in which the
    backbone is a part) and whose positions are taken to form a square. Positions of another grid than the model's are
    resampled as timm does: bicubic with antialiasing, or bilinear for the original ViT. What does not fit is left for a
    strict load to name.

    Returns the weights without a classifier, and the grid that positions were resampled from, or None.

    Raises:
        BackboneError: naming a tensor, if the names cannot be translated or the positions form no grid; if the file
            holds several models, or register tokens where the model has none.
        UnsupportedError: for a checkpoint whose positions are not resampled by the same rule.
    """
    target: Grid = tuple(vit.patch_embed.grid_size)
    prefix = 0 if vit.no_embed_class else vit.num_prefix_tokens
    flax = is_flax(state)
    fitted = without_classifier(state) if grid else _translated(state, vit)
    positions = fitted.get("pos_embed")
    if positions is None or positions.ndim != 3:
        return fitted, None
    grid = grid or _square(positions.shape[1] - prefix, target)
    if grid == target or positions.shape[1] != prefix + math.prod(grid):
        return fitted, None
    fitted["pos_embed"] = resample_abs_pos_embed(
        positions,
        new_size=list(target),
        old_size=list(grid),
        num_prefix_tokens=prefix,
        interpolation="bilinear" if flax else "bicubic",
        antialias=not flax,
    )
    return fitted, grid


def without_classifier(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights under timm's names but those of a classifier, of a distilled DeiT's second one as well."""
    return {name: value for name, value in state.items() if not name.startswith(_CLASSIFIERS)}


def refuse_transformers(state: Mapping[str, Tensor]) -> None:
    """Raises UnsupportedError for weights of Hugging Face transformers, whose configuration has to be read too."""
    if any(f".{name}".endswith(f".{_TRANSFORMERS}") for name in state):
        raise UnsupportedError(
            "these are weights of Hugging Face transformers; `fpet convert FOLDER --output FILE` makes a backbone of a "
            "folder with them and their config.json"
        )


def _translated(state: Mapping[str, Tensor], vit: Any) -> dict[str, Tensor]:
    if is_flax(state):
        return from_flax(state, vit.blocks[0].attn.num_heads)
    if any(name.startswith("radio_model.") for name in state):
        raise UnsupportedError("RADIO's own checkpoint is not covered; timm's copy of it is")
    cleaned = _unprefixed(clean_state_dict(dict(state)))
    _check_registers(cleaned, vit)
    _check_patches(cleaned, vit)
    vit.pos_embed = None  # timm's filter then renames, and leaves the positions to us
    try:
        renamed = checkpoint_filter_fn(cleaned, vit, adapt_layer_scale=True)
    except Exception as error:  # it takes names and shapes for granted
        raise BackboneError(f"the weights are of no known layout: {type(error).__name__}: {error}") from error
    return without_classifier(renamed)


def _unprefixed(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights below the prefix of the blocks, such as `backbone.`, without it; all weights if there is none.

    Of a teacher and a student it is the teacher.
    """
    prefixes = sorted({found[1] for name in state if (found := _BLOCKS.match(name))})
    if len(prefixes) > 1:
        prefixes = [prefix for prefix in prefixes if "teacher" in prefix] or prefixes
    if not prefixes or "" in prefixes:
        return dict(state)
    if len(prefixes) > 1 and len({re.sub(r"\d+", "", prefix) for prefix in prefixes}) == 1:
        return dict(state)  # one model, in stages: no plain Vision Transformer, as a missing key will tell
    if len(prefixes) > 1:
        places = ", ".join(map(repr, prefixes[:3]))
        raise BackboneError(f"the file has blocks behind each of {places}: keep the weights of one plain model")
    [prefix] = prefixes
    return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}


def _check_registers(state: Mapping[str, Tensor], vit: Any) -> None:
    """Register tokens bring positions that have other shapes: an error about those would name the wrong cause."""
    registers = state.get("reg_token", state.get("register_tokens"))
    if registers is None or vit.reg_token is not None or registers.ndim != 3:
        return
    architecture, count = vit.pretrained_cfg["architecture"], registers.shape[1]
    part = f"_reg{count}_"
    likely = re.sub(r"(_patch\d+)_", rf"\1{part}", architecture)
    example = f", such as {likely}" if timm.is_model(likely) else ""
    raise BackboneError(
        f"the weights have {count} register tokens, and {architecture} has none: name an architecture with {part!r} in "
        f"its name{example}"
    )


def _check_patches(state: Mapping[str, Tensor], vit: Any) -> None:
    """timm's filter resizes a patch embedding, which would let one architecture pass for another."""
    kernel = list(vit.patch_embed.proj.weight.shape[-2:])
    for name, value in state.items():
        if value.ndim == 4 and list(value.shape[-2:]) != kernel:
            raise BackboneError(
                f"{name!r} has shape {list(value.shape)}; the model's patches are {kernel}: name another architecture, "
                "or its argument patch_size"
            )


def _square(positions: int, target: Grid) -> Grid:
    side = math.isqrt(max(positions, 0))
    if side * side == positions:
        return side, side
    if positions == math.prod(target):
        return target
    raise BackboneError(f"'pos_embed' has {positions} positions besides its prefix, which are no square")
