"""A frozen timm Vision Transformer, read from a local file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fpet import _torchvision
from fpet.errors import BackboneError, UnsupportedError
from fpet.files import read_safetensors, write_safetensors
from fpet.tokens import Geometry

_torchvision.declare_missing_operators()

import timm  # noqa: E402
from timm.layers import Mlp  # noqa: E402
from timm.models.deit import VisionTransformerDistilled  # noqa: E402
from timm.models.vision_transformer import Attention, Block, VisionTransformer  # noqa: E402

FORMAT = 1
_RESERVED = ("num_classes", "pretrained", "checkpoint_path", "dynamic_img_size")


@dataclass(frozen=True, eq=False)
class Backbone:
    """A frozen Vision Transformer in evaluation mode.

    vit: the timm module without a classifier; architecture, arguments: how timm makes it; fingerprint: SHA-256 over
    names, shapes and float32 values of its weights, in hexadecimal.
    """

    vit: nn.Module
    architecture: str
    arguments: dict[str, object]
    fingerprint: str
    geometry: Geometry


def create_backbone(
    architecture: str, arguments: Mapping[str, object], state: Mapping[str, Tensor] | None = None
) -> Backbone:
    """Makes a backbone by timm name and arguments, with the weights of `state` or timm's random initialisation.

    Raises:
        BackboneError: if timm does not know the name or arguments, or the weights do not fit, with the first key.
        UnsupportedError: if the forward pass does not cover the architecture.
    """
    for name in _RESERVED:
        if name in arguments:
            raise BackboneError(f"{architecture}: the argument {name!r} is not the caller's to set")
    try:
        options: dict[str, Any] = {**arguments, "num_classes": 0}
        vit: Any = timm.create_model(architecture, pretrained=False, **options)
    except (RuntimeError, TypeError, AssertionError, ValueError) as error:
        raise BackboneError(f"timm cannot make {architecture!r} with {dict(arguments)}: {error}") from error
    refuse_uncovered(vit, architecture)
    if state is not None:
        _load_strictly(vit, architecture, state)
    vit.requires_grad_(False).eval()
    return Backbone(vit, architecture, dict(arguments), fingerprint(vit), geometry(vit))


def load_backbone(
    path: Path, architecture: str | None = None, arguments: Mapping[str, object] | None = None
) -> Backbone:
    """Loads a backbone from a safetensors file of timm weights; a classifier in it is left out.

    Architecture and arguments come from the file's header if it was written by `save_backbone`, else from the caller.

    Raises:
        BackboneError: if the file cannot be read, does not say what it is, or does not fit.
        UnsupportedError: if the forward pass does not cover the architecture.
    """
    metadata, state = read_safetensors(path, BackboneError)
    header = _header(path, metadata)
    architecture = architecture or header.get("architecture")
    if architecture is None:
        raise BackboneError(f"{path}: the file does not say its architecture; name the timm model")
    given = header.get("arguments", {}) if arguments is None else arguments
    state = {key: value for key, value in state.items() if not key.startswith(("head.", "head_dist."))}
    try:
        return create_backbone(architecture, given, state)
    except BackboneError as error:
        raise BackboneError(f"{path}: {error}") from error


def save_backbone(
    path: Path,
    vit: nn.Module,
    architecture: str,
    arguments: Mapping[str, object],
    provenance: Mapping[str, object],
) -> None:
    """Writes a backbone with its description, atomically; `vit` is a timm model made with num_classes=0."""
    header = {
        "format": FORMAT,
        "architecture": architecture,
        "arguments": dict(arguments),
        "provenance": dict(provenance),
    }
    state = {name: value.detach().float().contiguous() for name, value in vit.state_dict().items()}
    write_safetensors(path, state, {"fpet": json.dumps(header)}, BackboneError)


def geometry(vit: Any) -> Geometry:
    """Reads the shape of a timm Vision Transformer off the model."""
    attn = vit.blocks[0].attn
    rows, columns = vit.patch_embed.grid_size
    return Geometry(
        depth=len(vit.blocks),
        embed_dim=vit.embed_dim,
        mlp_dim=vit.blocks[0].mlp.fc1.out_features,
        num_heads=attn.num_heads,
        head_dim=attn.head_dim,
        grid=(rows, columns),
        num_prefix_tokens=vit.num_prefix_tokens,
        patch_dim=vit.patch_embed.proj.weight[0].numel(),
    )


def fingerprint(vit: nn.Module) -> str:
    """SHA-256 over names, shapes and float32 values of the weights, in hexadecimal."""
    digest = hashlib.sha256()
    for name, value in sorted(vit.state_dict().items()):
        digest.update(f"{name} {list(value.shape)}\n".encode())
        digest.update(value.detach().to("cpu", torch.float32).contiguous().numpy().tobytes())
    return digest.hexdigest()


def refuse_uncovered(vit: Any, architecture: str) -> None:
    """Raises UnsupportedError, naming the part, for a model whose blocks the forward pass does not cover."""
    if type(vit) not in (VisionTransformer, VisionTransformerDistilled):
        raise UnsupportedError(f"{architecture} is a {type(vit).__name__}; covered are plain Vision Transformers")
    for expected, parts in (
        (Block, vit.blocks),
        (Attention, [block.attn for block in vit.blocks]),
        (Mlp, [block.mlp for block in vit.blocks]),
    ):
        for part in parts:
            if type(part) is not expected:
                raise UnsupportedError(
                    f"{architecture} has a {type(part).__name__}; covered is timm's {expected.__name__}"
                )
    if any(block.attn.gate is not None for block in vit.blocks):
        raise UnsupportedError(f"{architecture} gates its attention, which is not covered")
    if vit.attn_pool is not None or vit.global_pool not in ("token", "avg"):
        raise UnsupportedError(f"{architecture} pools by {vit.global_pool!r}; covered are 'token' and 'avg'")
    if getattr(vit.patch_embed, "grid_size", None) is None:
        raise UnsupportedError(f"{architecture} takes images of any size; give img_size")


def _load_strictly(vit: Any, architecture: str, state: Mapping[str, Tensor]) -> None:
    expected = vit.state_dict()
    for key in sorted(expected.keys() | state.keys()):
        if key not in state:
            raise BackboneError(f"weights for {architecture} lack {key!r}")
        if key not in expected:
            raise BackboneError(f"weights for {architecture} have {key!r}, which the model does not")
        if state[key].shape != expected[key].shape:
            raise BackboneError(
                f"{key!r} has shape {list(state[key].shape)}; {architecture} needs {list(expected[key].shape)}"
            )
        if not state[key].isfinite().all():
            raise BackboneError(f"{key!r} has values that are not finite")
    vit.load_state_dict(state, strict=True)


def _header(path: Path, metadata: Mapping[str, str]) -> dict[str, Any]:
    if "fpet" not in metadata:
        return {}
    try:
        header = json.loads(metadata["fpet"])
    except ValueError as error:
        raise BackboneError(f"{path}: the header is not JSON: {error}") from error
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise BackboneError(f"{path}: the header is not of backbone format {FORMAT}")
    return header
