"""A frozen timm Vision Transformer, read from a local file."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fpet.backbone_files.checkpoints import read_checkpoint
from fpet.backbone_files.described import check_described, fingerprint, geometry
from fpet.backbone_files.description import Description, plain_arguments
from fpet.backbone_files.limits import check_weights, check_whole_patches
from fpet.backbone_files.names import fit_names, refuse_transformers, without_classifier
from fpet.backbone_files.timm_models import make_vit, refuse_name, vit_on_meta
from fpet.errors import BackboneError, UnsupportedError
from fpet.hardware import cpu, gpu
from fpet.json_values import check_json
from fpet.preprocess import Triple
from fpet.safetensors_files import write_safetensors
from fpet.tensor_names import dtype_name
from fpet.tokens import Geometry
from fpet.words import reason


@dataclass(frozen=True, eq=False)
class Backbone:
    """A frozen Vision Transformer in evaluation mode.

    vit: the timm module without a classifier; architecture, arguments: how timm makes it, the arguments as a JSON file
    holds them; fingerprint: SHA-256 over names, shapes and float32 values of its weights, in hexadecimal;
    resampled_from: (rows, columns) of the position embeddings in the file, where they were resampled for another image
    size.

    A distilled DeiT has a class and a distillation token, whose average is what a task's one head sees. timm averages
    the logits of two heads, which is the same where both heads are equal.
    """

    vit: nn.Module
    architecture: str
    arguments: dict[str, object]
    fingerprint: str
    geometry: Geometry
    resampled_from: tuple[int, int] | None = None

    @property
    def dtype(self) -> torch.dtype:
        """Type of the weights."""
        return next(self.vit.parameters()).dtype

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return next(self.vit.parameters()).device

    @property
    def distilled(self) -> bool:
        """Whether it is a distilled DeiT."""
        return hasattr(self.vit, "head_dist")

    def move(self, device: torch.device | str, dtype: torch.dtype | None = None) -> None:
        """Moves the weights to a device, as another floating type if one is given.

        It also calls `fpet.hardware.cpu.configure` and `gpu.configure`, whose settings hold for the whole process.

        Raises:
            TypeError: for a type that is none of torch's.
            UnsupportedError: if the device or the type cannot be used; if the weights were rounded to bfloat16 or
                float16 and are to be of another type, in which they would no longer have the fingerprint.
        """
        own = self.dtype
        if dtype is not None and not isinstance(dtype, torch.dtype):
            raise TypeError(f"dtype is one of torch's, such as torch.bfloat16, not {dtype!r}")
        if dtype is not None and not dtype.is_floating_point:
            raise UnsupportedError(f"weights are floating values, not {dtype_name(dtype)}")
        if dtype is not None and dtype != own and own.itemsize < torch.float32.itemsize:
            raise UnsupportedError(
                f"the weights were rounded to {dtype_name(own)}, and are not what they were as {dtype_name(dtype)}: "
                "load the backbone anew"
            )
        try:
            torch.zeros(1, device=device).item()  # meta would take the weights, but holds no values
            cpu.configure(device)
            gpu.configure(device)
            self.vit.to(device=device, dtype=dtype)
        except (RuntimeError, AssertionError) as error:  # torch's words for a device that is not there, or is full
            raise UnsupportedError(f"the device '{device}' cannot be used: {_why_not(device, error)}") from error

    def check_trainable(self) -> None:
        """Raises UnsupportedError unless a task can be trained on it: it is float32, and `check_unchanged` passes."""
        if self.dtype != torch.float32:
            raise UnsupportedError(
                f"the backbone is {dtype_name(self.dtype)}: to train it is float32, as it was loaded; a recipe's "
                "precision says in what is multiplied"
            )
        self.check_unchanged()

    def check_unchanged(self) -> None:
        """Raises UnsupportedError if the weights no longer have the fingerprint, as after training them or rounding
        them and back. Weights in bfloat16 or float16 are not compared: in those rounding alone changes them.
        """
        exact = self.dtype.itemsize >= torch.float32.itemsize
        if exact and fingerprint(self.vit) != self.fingerprint:
            raise UnsupportedError(
                "the backbone's weights were changed, and a task is of a frozen backbone: load it anew, or save what "
                "it is now by `save_backbone` and load that"
            )


def _why_not(device: torch.device | str, error: Exception) -> str:
    """Why a device cannot be used; torch lists twenty kinds that nobody has."""
    try:
        torch.device(device)
    except RuntimeError:
        return "there is none of that name, but cpu, cuda or cuda:1"
    if isinstance(error, AssertionError):
        return f"{reason(error)}: install a torch for it, or use the cpu"
    return reason(error)


@torch.inference_mode(mode=False)  # inference tensors could not be trained on
def create_backbone(
    architecture: str,
    arguments: Mapping[str, object] | None = None,
    state: Mapping[str, Tensor] | None = None,
    normalization: Mapping[str, Triple] | None = None,
) -> Backbone:
    """Makes a backbone by timm name and arguments, with the weights of `state` or timm's random initialisation.

    arguments: timm's, that a JSON file can hold (a tuple becomes a list), and `norm_eps`, the epsilon of the layer
    norms. state: a classifier in it is left out. normalization: `mean` and `std` of its images, where they are not
    those of timm's table.

    Raises:
        BackboneError: if timm does not know the name or arguments, a JSON file cannot hold an argument, the weights do
            not fit, with the first key, the image is no whole number of patches, or the model is larger than any (see
            `fpet.backbone_files.limits`).
        UnsupportedError: if the forward pass does not cover the architecture.
    """
    arguments = plain_arguments(arguments or {})
    # Shapes first, without memory for them, if there is a file: of few bytes, it may ask for a model of many.
    make = make_vit if state is None else vit_on_meta
    vit = make(architecture, arguments, normalization or {})
    check_whole_patches(vit, arguments)
    if state is not None:
        state = without_classifier(state)
        check_weights(vit, architecture, state)
        vit.to_empty(device="cpu").load_state_dict(state, strict=True)
    vit.requires_grad_(False).eval()
    return Backbone(vit, architecture, arguments, fingerprint(vit), geometry(vit))


def load_backbone(
    path: str | os.PathLike[str],
    architecture: str | None = None,
    arguments: Mapping[str, object] | None = None,
    normalization: Mapping[str, Triple] | None = None,
) -> Backbone:
    """Loads a backbone from a file; a classifier in it is left out.

    A file written by `save_backbone` or `save_vit` says what it is; the caller may still choose another image size or
    pooling. For any other (safetensors or torch checkpoint of timm, DeiT, DINOv2 or CLIP, .npz of the original ViT) the
    caller names the timm model, and the arguments in which it differs. Position embeddings are resampled to the image
    size; those of such a file are taken to be of a square image, if their number allows that.

    Raises:
        BackboneError: if the file cannot be read, does not say what it is, or does not fit.
        UnsupportedError: if the forward pass does not cover the architecture, or the file is one of transformers.
    """
    refuse_name(Path(path))
    checkpoint = read_checkpoint(Path(path))
    described = checkpoint.description
    try:
        arguments = plain_arguments(arguments or {})
        if described is None:
            refuse_transformers(checkpoint.state)
            if architecture is None:
                raise BackboneError(
                    "the file does not say its architecture; name the timm model: `fpet import-backbone FILE "
                    "--architecture NAME` makes a file that says it"
                )
            wanted = Description(architecture, arguments, dict(normalization or {}))
            stored = None
        else:
            wanted = described.adjusted(architecture, arguments, normalization or {})
            stored = geometry(vit_on_meta(described.architecture, described.arguments)).grid
        vit = vit_on_meta(wanted.architecture, wanted.arguments)
        state, resampled_from = fit_names(checkpoint.state, vit, stored)
        backbone = create_backbone(wanted.architecture, wanted.arguments, state, wanted.normalization)
    except (BackboneError, UnsupportedError) as error:
        raise type(error)(f"{path}: {error}") from error
    return dataclasses.replace(backbone, resampled_from=resampled_from)


def save_backbone(
    path: str | os.PathLike[str], backbone: Backbone, *, provenance: Mapping[str, object] | None = None
) -> None:
    """Writes a backbone with the weights that it has now, as `save_vit` does, whose errors it raises."""
    save_vit(path, backbone.vit, backbone.architecture, backbone.arguments, provenance=provenance)


def save_vit(
    path: str | os.PathLike[str],
    vit: nn.Module,
    architecture: str,
    arguments: Mapping[str, object] | None = None,
    *,
    provenance: Mapping[str, object] | None = None,
) -> None:
    """Writes a timm model with its description, atomically; a classifier in it is left out.

    architecture, arguments: how timm makes the model; the weights are written as float32, whatever they are in it.
    provenance: what the file says of their origin.

    Raises:
        BackboneError: if they describe another model, naming the first key that does not fit, or what differs; if the
            weights are not finite, `provenance` holds what is no JSON, or the file cannot be written.
        UnsupportedError: if the forward pass does not cover the architecture.
    """
    origin = dict(provenance or {})
    try:
        check_json(origin, "provenance")
    except ValueError as error:
        raise BackboneError(f"{path}: {error}") from error
    vit = getattr(vit, "_orig_mod", vit)  # of what torch.compile made
    state = {name: value.detach().float().cpu().contiguous() for name, value in vit.state_dict().items()}
    state = without_classifier(state)
    try:
        arguments = plain_arguments(arguments or {})
        described = vit_on_meta(architecture, arguments)
        # A model that `timm.create_model` did not make has no table of its own.
        table: Any = getattr(vit, "pretrained_cfg", None) or described.pretrained_cfg
        normalization = {name: tuple(table[name]) for name in ("mean", "std")}
        description = Description(architecture, arguments, normalization, origin)
        check_weights(described, architecture, state)
        check_described(vit, described, state)
    except (BackboneError, UnsupportedError) as error:
        raise type(error)(f"{path}: {error}") from error
    write_safetensors(Path(path), state, description.metadata(), BackboneError)
