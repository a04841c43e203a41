"""ViT and DeiT models of Hugging Face transformers -> backbones under timm's names."""

from __future__ import annotations

import json
import logging
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fpet.backbone import Backbone, create_backbone
from fpet.backbone_files.limits import check_depth
from fpet.backbone_files.timm_models import NORM_EPS
from fpet.convert.fields import Fields
from fpet.convert.names import TIMM, places
from fpet.errors import BackboneError, UnsupportedError
from fpet.json_values import is_finite
from fpet.safetensors_files import read_safetensors

logger = logging.getLogger(__name__)

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
_IMAGES = "preprocessor_config.json"
_TIMM_WEIGHTS = "pytorch_model.bin"  # as timm calls them where they are no safetensors
_LARGEST = 255  # value of a pixel

# timm models of the same kind, whose table has the same normalisation of images.
_ARCHITECTURES = {"vit": "vit_base_patch16_224", "deit": "deit_base_patch16_224"}
_STEM = {
    "embeddings.cls_token": "cls_token",
    "embeddings.distillation_token": "reg_token",
    "embeddings.position_embeddings": "pos_embed",
    "embeddings.patch_embeddings.projection": "patch_embed.proj",
    "layernorm": "norm",
}
_NORMS = {"layernorm_before": "norm1", "layernorm_after": "norm2"}
_LEFT_OUT = ("classifier.", "cls_classifier.", "distillation_classifier.", "pooler.", "embeddings.mask_token")


def read_transformers(folder: str | os.PathLike[str]) -> Backbone:
    """The backbone of a saved model, without its classifier.

    A warning is logged where its images were cropped, as a task's are not.

    Raises:
        BackboneError: if a file cannot be read or does not fit.
        UnsupportedError: for another kind of model, or pixels in values that are not covered.
    """
    folder = Path(folder)
    config = Fields.read(folder / CONFIG, BackboneError)
    if "model_type" not in config.values and "architecture" in config.values:
        weights = next((folder / name for name in (WEIGHTS, _TIMM_WEIGHTS) if (folder / name).exists()), "FILE")
        raise BackboneError(
            f"{folder}: timm saved this model; `fpet import-backbone {weights} --architecture "
            f"{config.get('architecture', str)} --output FILE` makes a backbone file of it"
        )
    architecture, arguments = _architecture(config)
    if not (folder / WEIGHTS).exists():
        raise BackboneError(
            f"{folder}: there is no {WEIGHTS}; other formats, and weights in several files, are not read"
        )
    _, stored = read_safetensors(folder / WEIGHTS, BackboneError)
    prefix = f"{config.get('model_type', str)}."
    state = {name.removeprefix(prefix): value for name, value in stored.items()}
    try:
        check_depth(arguments)  # before there is a name for each of so many blocks
        renamed = _renamed(state, config.get("num_hidden_layers", int), prefix)
        return create_backbone(architecture, arguments, renamed, _normalization(folder / _IMAGES))
    except BackboneError as error:
        raise BackboneError(f"{folder}: {error}") from error


def _normalization(path: Path) -> dict[str, Any]:
    """Mean and deviation of pixels from 0 to 1, if the folder says them; else timm's table holds."""
    if not path.exists():
        return {}
    images = _image_processor(path)
    if not images.get("do_rescale", bool, True):
        raise UnsupportedError(f"{path}: do_rescale = False: it is not said from which values to which pixels went")
    if images.get("rescale_offset", bool, False):
        raise UnsupportedError(f"{path}: rescale_offset = True is not covered")
    if images.get("do_normalize", bool, True):
        found = {name: images.values[f"image_{name}"] for name in ("mean", "std") if f"image_{name}" in images.values}
    else:  # mean and deviation may stand there nevertheless
        found = {"mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0)}
    return _of_unit(found, images)


def _image_processor(path: Path) -> Fields:
    """What a folder says of its images; null is nothing, and one number stands for all three channels."""
    read = Fields.read(path, BackboneError)
    values = {name: value for name, value in read.values.items() if value is not None}
    for name in ("image_mean", "image_std"):
        if _is_number(values.get(name)):
            values[name] = [values[name]] * 3
    images = Fields.of(values, str(path), BackboneError)
    size, crop = values.get("size"), values.get("crop_size")
    if images.get("do_center_crop", bool, False) and size != crop:
        logger.warning(
            "%s: images were resized to %s and the middle of %s was cut out; a task resizes the whole image, "
            "with which an adapter that was trained so may answer otherwise",
            *(path, json.dumps(size), json.dumps(crop)),
        )
    return images


def _of_unit(found: dict[str, Any], images: Fields) -> dict[str, Any]:
    """Mean and deviation as if a pixel's largest value were 1, not that which the factor makes of 255."""
    largest = _LARGEST * images.get("rescale_factor", float, 1 / _LARGEST)
    if largest <= 0:
        raise BackboneError(f"{images.origin}: rescale_factor should be above 0")
    if math.isclose(largest, 1):
        return found
    for name in ("mean", "std"):
        values = found.get(name)
        if not isinstance(values, (list, tuple)) or not all(map(_is_number, values)):
            raise BackboneError(
                f"{images.origin}: image_{name} = {values!r} should be three numbers, as there is a rescale_factor"
            )
    return {name: tuple(value / largest for value in values) for name, values in found.items()}


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and is_finite(value)


def _architecture(config: Fields) -> tuple[str, dict[str, object]]:
    kind = config.get("model_type", str)
    if kind not in _ARCHITECTURES:
        raise UnsupportedError(f"{config.origin}: model_type = {kind!r}; covered are {' and '.join(_ARCHITECTURES)}")
    for name, covered in (("hidden_act", "gelu"), ("num_channels", 3)):
        if config.values.get(name, covered) != covered:
            raise UnsupportedError(f"{config.origin}: {name} = {config.values[name]!r}; covered is {covered!r}")
    width = config.get("hidden_size", int)
    arguments: dict[str, object] = {
        "img_size": config.get("image_size", int),
        "patch_size": config.get("patch_size", int),
        "embed_dim": width,
        "depth": config.get("num_hidden_layers", int),
        "num_heads": config.get("num_attention_heads", int),
        "mlp_ratio": _ratio(config.get("intermediate_size", int), max(width, 1)),
        "qkv_bias": config.get("qkv_bias", bool, True),
        NORM_EPS: config.get("layer_norm_eps", float, 1e-12),
    }
    if kind == "deit":  # to a classifier that reads the class token, the distillation token is a register
        arguments["reg_tokens"] = 1
    return _ARCHITECTURES[kind], arguments


def _ratio(hidden: int, width: int) -> float:
    """timm's `mlp_ratio`: `width` times this, rounded down, is `hidden`, the width of the MLP."""
    ratio = hidden / width
    return math.nextafter(ratio, math.inf) if width * ratio < hidden else ratio


def _renamed(state: Mapping[str, Tensor], depth: int, prefix: str) -> dict[str, Tensor]:
    """Names without the prefix -> timm's; a name that is in no table stays, for a strict load to refuse."""
    layers = {path.removeprefix(prefix): place for path, place in places(depth).items() if path.startswith(prefix)}
    renamed: dict[str, Tensor] = {}
    attention: dict[tuple[int, str], dict[str, Tensor]] = {}
    for name, value in state.items():
        module, _, part = name.rpartition(".")
        block, _, norm = module.rpartition(".")
        if name.startswith(_LEFT_OUT):
            continue
        if name in _STEM:
            renamed[_STEM[name]] = value
        elif module in _STEM:
            renamed[f"{_STEM[module]}.{part}"] = value
        elif norm in _NORMS:
            renamed[f"blocks.{block.rpartition('.')[2]}.{_NORMS[norm]}.{part}"] = value
        elif module not in layers:
            renamed[name] = value
        elif layers[module][1] in ("q", "k", "v"):
            number, target = layers[module]
            attention.setdefault((number, part), {})[target] = value
        else:
            number, target = layers[module]
            renamed[f"blocks.{number}.{TIMM.layers[target]}.{part}"] = value
    for (number, part), parts in attention.items():
        if parts.keys() != {"q", "k", "v"}:
            continue
        if len({(value.shape, value.dtype) for value in parts.values()}) > 1 or not parts["q"].ndim:
            raise BackboneError(f"queries, keys and values of block {number}: the shapes or types of {part} differ")
        renamed[f"blocks.{number}.attn.qkv.{part}"] = torch.cat([parts[target] for target in ("q", "k", "v")])
    return renamed
