"""LoRA tasks -> checkpoints of Hugging Face PEFT, for a timm ViT or for a ViT or DeiT of transformers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import cast

import safetensors.torch
import torch
from torch import Tensor, nn

from fpet.adapters.lora import SLICES, LoRA, LoRABlock, LowRank, tensor_prefix
from fpet.backbone import Backbone
from fpet.convert.counterpart import foreign_part, refuse_without_counterpart
from fpet.convert.names import DEIT, TIMM, VIT, Names
from fpet.convert.peft import CONFIG, PARTS, PREFIX, WEIGHTS, refuse_two_classifiers
from fpet.errors import UnsupportedError
from fpet.linear import LowBitLinear
from fpet.task import Task
from fpet.tensor_names import dtype_name

LIBRARIES = ("timm", "transformers")
Update = tuple[Tensor, Tensor]  # A [rank, in] and B [out, rank]


def peft_files(task: Task, backbone: Backbone, library: str | None = None) -> dict[str, bytes]:
    """The files of a checkpoint by name. Quantised weights are written as the float32 matrices that they stand for.

    library: whose names the layers have; by default timm's if queries, keys and values share their A, or transformers
    has no model that computes what the backbone does, else transformers'. Token reduction is no part of a checkpoint.

    Raises:
        TaskError: if the task does not fit the backbone.
        UnsupportedError: if the backbone is not float32; if the task is not LoRA, or the library's layers cannot take
            its updates; as `refuse_two_classifiers`; for transformers' names as `refuse_without_counterpart`.
    """
    refuse_two_classifiers(backbone)
    if backbone.dtype != torch.float32:
        raise UnsupportedError(f"the backbone is {dtype_name(backbone.dtype)}, in which a task's weights are rounded")
    model = task.build(backbone)
    if not isinstance(model.adapter, LoRA):
        raise UnsupportedError(f"{task.path}: PEFT has LoRA, not {task.header.adapter.kind}")
    if library is None:
        library = "timm" if "qkv" in model.adapter.targets or foreign_part(backbone) else "transformers"
    if library == "transformers":
        refuse_without_counterpart(backbone)
    names = TIMM if library == "timm" else DEIT if backbone.geometry.num_prefix_tokens > 1 else VIT
    modules = model.trainable()
    head = _head(modules)
    tensors = {f"{PREFIX}{names.head}.{part}": value for part, value in head.items()}
    layers: dict[str, int] = {}  # rank by the layer's path in a block
    for block in range(backbone.geometry.depth):
        updates = {target: _update(modules, block, target) for target in model.adapter.targets}
        for target, update in _regrouped(updates, names).items():
            layers[names.layers[target]] = update[0].shape[0]
            for suffix, matrix in zip(PARTS, update, strict=True):
                tensors[f"{PREFIX}{names.layer(block, target)}{suffix}"] = matrix.contiguous()
    if len(set(layers.values())) > 1:
        ranks = ", ".join(f"{layer} {rank}" for layer, rank in layers.items())
        raise UnsupportedError(f"{task.path}: in {library}'s layers the updates have several ranks: {ranks}")
    (rank,) = set(layers.values())
    scale = cast(LoRABlock, model.adapter.blocks[0]).scale
    config = _config(list(layers), rank, scale, names.head)
    return {WEIGHTS: safetensors.torch.save(tensors, {"format": "pt"}), CONFIG: json.dumps(config, indent=2).encode()}


def _update(modules: nn.Module, block: int, target: str) -> Update:
    low_rank = cast(LowRank, modules.get_submodule(tensor_prefix(block, target)))
    return low_rank.down.effective_weight().detach(), low_rank.up.effective_weight().detach()


def _head(modules: nn.Module) -> dict[str, Tensor]:
    """Weight and bias; zeros if it has none, as the library's classifier has one."""
    head = cast(LowBitLinear, modules.get_submodule("head"))
    weight = head.effective_weight().detach()
    return {"weight": weight, "bias": weight.new_zeros(weight.shape[0]) if head.bias is None else head.bias.detach()}


def _regrouped(updates: Mapping[str, Update], names: Names) -> dict[str, Update]:
    """The same updates of the layers that the library has: a fused qkv, or three."""
    others = {target: update for target, update in updates.items() if target not in (*SLICES, "qkv")}
    slices = {target: update for target, update in updates.items() if target in SLICES}
    if slices and "qkv" in names.layers:
        return {"qkv": _joined(slices), **others}
    if "qkv" in updates and "qkv" not in names.layers:
        a, b = updates["qkv"]
        return {**{target: (a.clone(), rows) for target, rows in zip(SLICES, b.chunk(3), strict=True)}, **others}
    return dict(updates)


def _joined(slices: Mapping[str, Update]) -> Update:
    """Updates of single slices as one of the fused layer: their ranks add up, and B has a block for each."""
    a = torch.cat([down for down, _ in slices.values()])
    rank = a.shape[0] // len(slices)
    channels = next(iter(slices.values()))[1].shape[0]
    b = a.new_zeros(3 * channels, a.shape[0])
    for column, (target, (_, up)) in enumerate(slices.items()):
        row = SLICES.index(target)
        b[row * channels : (row + 1) * channels, column * rank : (column + 1) * rank] = up
    return a, b


def _config(layers: list[str], rank: int, scale: float, head: str) -> dict[str, object]:
    """PEFT multiplies by lora_alpha / r."""
    alpha = float(scale * rank)
    return {
        "peft_type": "LORA",
        "base_model_name_or_path": None,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
        "lora_alpha": int(alpha) if alpha.is_integer() else alpha,
        "lora_dropout": 0.0,
        "modules_to_save": [head],
        "r": rank,
        "target_modules": layers,
        "task_type": None,
        "use_rslora": False,
    }
