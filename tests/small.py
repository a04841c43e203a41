"""A small backbone and small data for tests that train; what they train is real, only little."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import torch
from torch import nn

from fpet.adapters import ADAPTERS
from fpet.backbone import Backbone, create_backbone
from fpet.data import Dataset, Split, load_dataset
from fpet.data.split import ImageTensor
from fpet.header import BackboneRef, Method, TaskHeader
from fpet.preprocess import Preprocessing
from fpet.reducers import REDUCERS
from fpet.task import Task, new_model, save_task
from fpet.vit import AdaptedViT

ARCHITECTURE = "vit_tiny_patch16_224"
PUBLISHED_ODD = "vit_so400m_patch14_siglip_gap_384"  # its image has 27 patches of 14 a side, and six pixels more
ARGUMENTS: dict[str, object] = {"img_size": 16, "patch_size": 4, "embed_dim": 24, "depth": 2, "num_heads": 3}
ADAPTFORMER = Method("adaptformer", {"dim": 4})
BDM = Method("bdm", {"block": 0, "dim": 4})  # after the last attention merging would change nothing
LORA_TARGETS = ("k+fc1", "qkv+proj+fc2")  # all that LoRA reaches besides its default
IN_ALL_BLOCKS = {"tome": {"r": 2}, "ltmp": {"target": 0.5}}
# Every adapter, and every reducer, once; and every layer that LoRA reaches.
METHODS = [
    *((Method(kind), Method("none") if method.needs_grid else BDM) for kind, method in ADAPTERS.items()),
    *((Method("lora", {"targets": targets}), BDM) for targets in LORA_TARGETS),
    *((ADAPTFORMER, Method(kind, IN_ALL_BLOCKS.get(kind, {"block": 0}))) for kind in REDUCERS if kind != "none"),
    (ADAPTFORMER, Method("none")),
]


def small_backbone() -> Backbone:
    """Random weights, always the same; 16 patches of 4 pixels and a class token."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return create_backbone(ARCHITECTURE, ARGUMENTS)


@torch.no_grad()
def perturb(module: nn.Module, amount: float) -> None:
    """Moves every parameter off its neutral value, so that leaving one out shows; amount: a standard deviation."""
    for parameter in module.parameters():
        parameter.add_(torch.randn_like(parameter), alpha=amount)


def small_digits() -> Dataset:
    """80 training, 40 validation and 60 test images of handwritten digits."""
    digits = load_dataset("digits")
    splits = {"train": 80, "val": 40, "test": 60}
    return dataclasses.replace(digits, **{name: _first(getattr(digits, name), n) for name, n in splits.items()})


def small_header(backbone: Backbone, adapter: Method = ADAPTFORMER, reducer: Method = BDM) -> TaskHeader:
    """A digits task on this backbone."""
    return TaskHeader(
        name="digits",
        backbone=BackboneRef(backbone.architecture, backbone.arguments, backbone.fingerprint),
        adapter=adapter,
        reducer=reducer,
        labels=tuple("0123456789"),
        preprocessing=Preprocessing(size=(16, 16)),
    )


def small_family(
    folder: Path, adapter: Method, reducer: Method, device: str = "cpu", dtype: torch.dtype = torch.float32
) -> list[AdaptedViT]:
    """Models of three tasks of a family, far apart, loaded from their files."""
    exact, backbone, made = small_backbone(), small_backbone(), []
    backbone.move(device, dtype)
    header = small_header(exact, adapter, reducer)
    for seed in range(3):
        torch.manual_seed(seed)
        model = new_model(header, exact)
        perturb(model.trainable(), 0.3)
        path = folder / f"{seed}.safetensors"
        save_task(path, header, model)
        made.append(Task.load(path).build(backbone))
    return made


def _first(split: Split, count: int) -> Split:
    pixels = torch.stack([split.images[i][0] for i in range(count)])
    return Split(ImageTensor(pixels), split.targets[:count])
