"""A folded task as a file for stock timm: what it says of itself, and how timm makes its model and prepares images."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from torch import Tensor

from fpet.backbone_files.timm_models import NORM_EPS, vit_on_meta
from fpet.errors import TaskError, UnsupportedError
from fpet.header import TaskHeader
from fpet.linear import LowBitLinear
from fpet.safetensors_files import write_safetensors
from fpet.task import Task
from fpet.vit import AdaptedViT


def write_timm_checkpoint(path: Path, task: Task, model: AdaptedViT) -> None:
    """Writes the folded model of a task, atomically.

    The metadata differ from those of tasks and backbones, whose readers recognise a folded task by the field `folded`.

    Raises:
        UnsupportedError: if the adapter gave layers a bias that timm's model does not have.
        TaskError: if the file cannot be written.
    """
    state, backbone = timm_state(model), model.backbone
    known = vit_on_meta(backbone.architecture, backbone.arguments).state_dict().keys()
    added = sorted(name for name in state.keys() - known if not name.startswith(("head.", "head_dist.")))
    if added:
        raise UnsupportedError(
            f"{path}: timm's {backbone.architecture} with these arguments has no {added[0]!r}, which "
            f"{task.header.adapter.kind} needs there"
        )
    folded = {
        "task": task.header.name,
        "digest": task.digest,
        "labels": task.header.labels,
        "preprocessing": dataclasses.asdict(task.header.preprocessing),
        "architecture": backbone.architecture,
        "arguments": backbone.arguments,
    }
    write_safetensors(path, state, {"fpet": json.dumps({"folded": folded})}, TaskError)


def timm_state(model: AdaptedViT) -> dict[str, Tensor]:
    """The weights of a folded model under timm's names, the head as its classifier; float32, on the CPU."""
    state = dict(model.vit.state_dict())
    head: dict[str, Tensor] = dict(model.head.named_parameters())
    if isinstance(model.head, LowBitLinear):
        head["weight"] = model.head.effective_weight()
    head.setdefault("bias", head["weight"].new_zeros(len(head["weight"])))  # timm's classifier has one
    for name, value in head.items():
        state[f"head.{name}"] = value
        if model.backbone.distilled:
            # timm averages the logits of both tokens, we the tokens; a file holds no tensor twice.
            state[f"head_dist.{name}"] = value.clone()
    return {name: value.detach().float().cpu().contiguous() for name, value in state.items()}


def creation(path: Path, task: Task, model: AdaptedViT) -> str:
    """The Python expression that makes the model with timm from the file at `path`; it needs `timm` and `functools`."""
    keywords = {
        "num_classes": len(task.header.labels),
        **model.backbone.arguments,
        "pretrained_cfg_overlay": timm_config(task.header),
    }
    given = ", ".join(_keyword(name, value) for name, value in keywords.items())
    return f"timm.create_model({model.backbone.architecture!r}, checkpoint_path={str(path)!r}, {given})"


def timm_config(header: TaskHeader) -> dict[str, object]:
    """What to put into a model's `pretrained_cfg`, from which `timm.data` makes its transform.

    That resizes with Pillow, a task with torch. The results differ by 1 of 255 here and there, on a few sharp edges of
    the sample images by up to 9. `num_classes` is there for timm to keep the labels when it saves a model.
    """
    preprocessing = header.preprocessing
    return {
        "input_size": (3, *preprocessing.size),
        "mean": preprocessing.mean,
        "std": preprocessing.std,
        "interpolation": preprocessing.interpolation,
        "crop_pct": 1.0,
        "crop_mode": "squash",  # both ignore the aspect ratio
        "num_classes": len(header.labels),
        "label_names": header.labels,
    }


def _keyword(name: str, value: object) -> str:
    if name == NORM_EPS:
        return f"norm_layer=functools.partial(timm.layers.LayerNorm, eps={value!r})"
    return f"{name}={value!r}"
