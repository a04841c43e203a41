"""What of a task must agree: with its backbone, with the model that it is saved from, and in itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from fpet.errors import TaskError
from fpet.header import Method, TaskHeader
from fpet.registry import completed
from fpet.tensor_names import dtype_name

if TYPE_CHECKING:
    from fpet.backbone import Backbone

_DTYPES = (torch.float32, torch.uint8)  # values, and packed codes


def check_backbone(path: Path | str, header: TaskHeader, backbone: Backbone) -> None:
    """Raises TaskError if the task belongs to another backbone; path: of its file, or its name if there is none."""
    said, given = header.backbone, json.loads(json.dumps(backbone.arguments))
    if said.fingerprint != backbone.fingerprint:
        others = "" if said.arguments == given else f"; its was made with {said.arguments}, this one with {given}"
        raise TaskError(
            f"{path}: the task belongs to the backbone {said.architecture} {said.fingerprint[:12]}, not to "
            f"{backbone.architecture} {backbone.fingerprint[:12]}{others}; it needs the one that it was "
            "trained on (--backbone)"
        )
    # The same weights make another function by another activation, pooling or number of heads.
    own = backbone.architecture
    if said.architecture.partition(".")[0] != own.partition(".")[0]:  # what follows the dot names weights
        raise TaskError(f"{path}: the task belongs to a backbone of {said.architecture}, not of {own}")
    if said.arguments != given:
        raise TaskError(f"{path}: the task belongs to a backbone made with {said.arguments}, not {given}")
    vit: Any = backbone.vit
    size = tuple(vit.patch_embed.img_size)
    if header.preprocessing.size != size:
        raise TaskError(f"{path}: the model cannot run on images of {header.preprocessing.size}, only of {size}")


def check_method(what: str, said: Method, own: Method, registry: Mapping[str, type[Any]]) -> None:
    """Raises TaskError, which begins with `what`, unless the header says the model's own method."""
    if said.kind != own.kind:
        raise TaskError(f"{what} is {said.kind!r} in the header, but {own.kind!r} in the model")
    in_header, in_model = (completed(registry, method).arguments for method in (said, own))
    for name in sorted(in_header.keys() | in_model.keys()):
        there, here = in_header.get(name), in_model.get(name)
        if there != here:
            raise TaskError(f"{what} has {name} = {there!r} in the header, but {here!r} in the model")


def check_values(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Raises TaskError for a tensor of another dtype than files hold, or with values that are not finite."""
    for name, tensor in tensors.items():
        if tensor.dtype not in _DTYPES:  # of others, some cannot even be asked whether they are finite
            found = dtype_name(tensor.dtype)
            raise TaskError(f"{path}: the tensor {name!r} is {found}; a task file holds float32 and uint8")
        if not tensor.isfinite().all():
            raise TaskError(f"{path}: the tensor {name!r} has values that are not finite")


def check_labels(path: Path, header: TaskHeader, tensors: Mapping[str, Tensor]) -> None:
    """Raises TaskError unless the head has a row for each label."""
    for name in ("head.bias", "head.weight"):
        if name not in tensors:
            continue
        shape = list(tensors[name].shape)
        if not shape:
            raise TaskError(f"{path}: {name!r} is a single number instead of a row for each label")
        if shape[0] != len(header.labels):
            raise TaskError(f"{path}: the header has {len(header.labels)} labels but {name!r} has {shape[0]} rows")
