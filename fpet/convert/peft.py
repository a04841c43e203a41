"""LoRA checkpoints of Hugging Face PEFT -> the adapter and head of a task.

The tensors say what was adapted and the configuration how. A feature that would make the checkpoint compute something
else than W h + scale * B A h is refused, whether this code knows it by name or not.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from fpet.adapters.lora import parse_targets, tensor_prefix
from fpet.backbone import Backbone
from fpet.backbone_files.limits import FLOATS, MOST_BLOCKS
from fpet.convert.counterpart import refuse_without_counterpart
from fpet.convert.fields import Fields
from fpet.convert.names import ALL, TIMM, WRAPPED_TIMM, places
from fpet.errors import TaskError, UnsupportedError
from fpet.header import HeadSpec, Method
from fpet.safetensors_files import read_safetensors
from fpet.tensor_names import dtype_name

CONFIG = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"
PREFIX = "base_model.model."
PARTS = {".lora_A.weight": "down.weight", ".lora_B.weight": "up.weight"}
_PATCHES = "patch_embed.proj"  # in timm
_HEADS = {f"{names.head}.{part}": f"head.{part}" for names in ALL for part in ("weight", "bias")}
# The only values under which the tensors are all there is: some initialisations change the base model's weights.
_REQUIRED: dict[str, tuple[object, ...]] = {
    "peft_type": ("LORA",),
    "bias": ("none", None),
    "init_lora_weights": (True, False, None, "gaussian", "orthogonal"),
}
_USED = ("r", "lora_alpha", "use_rslora")
_WITHOUT_EFFECT = (
    "auto_mapping",
    "base_model_name_or_path",
    "exclude_modules",
    "inference_mode",
    "layers_pattern",
    "layers_to_transform",
    "lora_dropout",
    "megatron_core",
    "modules_to_save",
    "peft_version",
    "qalora_group_size",
    "revision",
    "target_modules",
    "task_type",
)


@dataclass(frozen=True)
class PeftTask:
    """What a checkpoint holds of a task; tensors: float32, named as in a task file."""

    adapter: Method
    head: HeadSpec
    classes: int
    tensors: dict[str, Tensor]


def base_model(folder: Path) -> str:
    """What a checkpoint says that it was trained on; empty if it says nothing.

    Raises:
        TaskError: if its configuration cannot be read.
    """
    named = _config(folder).values.get("base_model_name_or_path")
    return named if isinstance(named, str) else ""


def refuse_two_classifiers(backbone: Backbone) -> None:
    """Raises UnsupportedError for timm's distilled DeiT: a checkpoint's classifier would see one of its two tokens."""
    if backbone.distilled:
        raise UnsupportedError(
            f"{backbone.architecture} averages two classifiers, where a task has one for both tokens; between it and "
            "PEFT this is not covered"
        )


def read_peft(folder: Path, backbone: Backbone) -> PeftTask:
    """Reads a checkpoint of a model like `backbone`, be it a timm ViT or a ViT or DeiT of transformers.

    Raises:
        TaskError: if a file cannot be read, or what it should hold is missing.
        UnsupportedError: naming a feature, module or tensor that is not covered; as `refuse_two_classifiers`; for
            tensors under transformers' names as `refuse_without_counterpart`.
    """
    refuse_two_classifiers(backbone)
    depth = backbone.geometry.depth
    config = _config(folder)
    rank, scale = _rank_and_scale(config)
    known = places(depth)
    tensors: dict[str, Tensor] = {}
    adapted: dict[str, tuple[int, str]] = {}
    for name, value in _stored(folder):
        suffix = next((suffix for suffix in PARTS if name.endswith(suffix)), "")
        module = name.removesuffix(suffix)
        if suffix and module in known:
            adapted[module] = known[module]
            _add(tensors, f"{tensor_prefix(*known[module])}.{PARTS[suffix]}", value, f"{folder}: {name!r}")
        elif name in _HEADS:
            _add(tensors, _HEADS[name], value, f"{folder}: {name!r}")
        else:
            raise UnsupportedError(f"{folder}: {name!r} is not covered: {_why_not(module if suffix else '', depth)}")
    if not adapted.keys() <= places(depth, (TIMM, WRAPPED_TIMM)).keys():
        refuse_without_counterpart(backbone)
    classes = _classes(folder, tensors)
    _check_targets(config, adapted, depth)
    targets = parse_targets("+".join({target: None for _, target in adapted.values()}))
    return PeftTask(
        Method("lora", {"dim": rank, "scale": scale, "targets": "+".join(targets)}),
        HeadSpec(bias="head.bias" in tensors),
        classes,
        tensors,
    )


def _add(tensors: dict[str, Tensor], name: str, value: Tensor, what: str) -> None:
    if name in tensors:
        raise UnsupportedError(f"{what} is there a second time, under another name: which of the two counts?")
    tensors[name] = value.float()


def refuse_folder_above(folder: Path) -> None:
    """Raises TaskError, naming where the checkpoint is, if it is in a folder below: there PEFT puts one with a name."""
    below = [str(path.parent) for path in sorted(folder.glob(f"*/{CONFIG}"))]
    if below and not (folder / CONFIG).exists():
        raise TaskError(f"{folder}: there is no {CONFIG}; give {' or '.join(below)}, which has one")


def _config(folder: Path) -> Fields:
    refuse_folder_above(folder)
    return Fields.read(folder / CONFIG, TaskError)


def _stored(folder: Path) -> Iterator[tuple[str, Tensor]]:
    """The checkpoint's tensors, sorted, by their names in the model."""
    if not (folder / WEIGHTS).exists():
        raise TaskError(f"{folder}: there is no {WEIGHTS}; other formats are not read")
    _, stored = read_safetensors(folder / WEIGHTS, TaskError)
    for key, value in sorted(stored.items()):
        if value.dtype not in FLOATS:
            raise UnsupportedError(f"{folder}: {key!r} is {dtype_name(value.dtype)}, which is not covered")
        yield key.removeprefix(PREFIX), value


def _why_not(module: str, depth: int) -> str:
    """module: that a LoRA is for; empty if it is none."""
    if not module:
        return "it is no LoRA, and no classifier"
    if module in places(MOST_BLOCKS):
        return f"the backbone has {depth} blocks, from 0"
    if module == _PATCHES:
        return (
            "PEFT adapts every module whose name ends in 'proj', the patch embedding's as well; a pattern leaves that "
            r"out, such as target_modules=r'.*blocks\.\d+\.attn\.proj'"
        )
    return f"{module} is no linear layer of a block"


def _classes(folder: Path, tensors: dict[str, Tensor]) -> int:
    if "head.weight" not in tensors:
        raise TaskError(f"{folder}: there is no classifier; PEFT saves one that modules_to_save names")
    shape = list(tensors["head.weight"].shape)
    if len(shape) != 2 or not all(shape):  # without columns a file of few bytes could have any number of rows
        raise TaskError(f"{folder}: the classifier's weight has shape {shape} instead of a row for each class")
    return shape[0]


def _rank_and_scale(config: Fields) -> tuple[int, float]:
    for name, value in config.values.items():
        if name in _REQUIRED:
            covered = value in _REQUIRED[name]
        else:
            covered = not value or name in _USED or name in _WITHOUT_EFFECT
        if not covered:
            raise UnsupportedError(f"{config.origin}: {name} = {value!r} is not covered")
    config.get("peft_type", str)
    rank, alpha = config.get("r", int), config.get("lora_alpha", float)
    if rank < 1:
        raise TaskError(f"{config.origin}: r = {rank} is not above 0")
    return rank, alpha / (math.sqrt(rank) if config.get("use_rslora", bool, False) else rank)


def _check_targets(config: Fields, adapted: dict[str, tuple[int, str]], depth: int) -> None:
    """Every module that the configuration names is adapted, in every block, but for one that is saved whole."""
    named, saved = (config.values.get(name) for name in ("target_modules", "modules_to_save"))
    whole = saved if isinstance(saved, list) else []
    for target in named if isinstance(named, list) else []:
        # PEFT's "all-linear" names the classifier too, which it then trains instead of adapting it.
        if target not in whole and not any(module == target or module.endswith(f".{target}") for module in adapted):
            raise UnsupportedError(f"{config.origin}: target_modules has {target!r}, for which there are no tensors")
    found = set(adapted.values())
    for target in {target: None for _, target in adapted.values()}:
        for block in range(depth):
            if (block, target) not in found:
                raise UnsupportedError(
                    f"{config.origin}: {target} is adapted in some blocks, but not in block {block}; the backbone has "
                    f"{depth} blocks"
                )
    if not found:
        raise TaskError(f"{config.origin}: no tensor is an update")
