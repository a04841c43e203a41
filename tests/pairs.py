"""Every adapter with every reducer, on a backbone small enough for all of them."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from small import perturb

from fpet.adapters import ADAPTERS
from fpet.backbone import Backbone, create_backbone
from fpet.header import BackboneRef, Method, TaskHeader
from fpet.preprocess import Preprocessing
from fpet.reducers import REDUCERS
from fpet.task import new_model
from fpet.vit import AdaptedViT

SMALL: dict[str, object] = {"img_size": 32, "patch_size": 8, "embed_dim": 24, "depth": 3, "num_heads": 3}
ARGUMENTS: dict[str, dict[str, Any]] = {
    "vpt-shallow": {"prompts": 2},
    "vpt-deep": {"prompts": 2},
    "lora": {"dim": 4},
    "adaptformer": {"dim": 4},
    "convpass": {"dim": 4},
    "repadapter": {"dim": 4},
    "fact-tt": {"rank": 4},
    "fact-tk": {"rank": 4},
    "bdm": {"block": 0, "dim": 8},
    "bsm": {"block": 1},
    "tome": {"r": 2},
    "average-pool": {"block": [0, 1]},
    "max-pool": {"block": 1},
}
# Convpass convolves over the grid of patches, which reductions leave.
REFUSED = [("convpass", reducer) for reducer in ("bdm", "bsm", "tome", "ltmp", "average-pool", "max-pool")]
PAIRS = [pair for pair in itertools.product(ADAPTERS, REDUCERS) if pair not in REFUSED]
# For what takes seconds a pair: every adapter with and without tokens that merge, and every reducer with and without
# prompts. What a graph holds of an adapter depends on a reducer by the number of tokens alone.
TRACED = [pair for pair in PAIRS if pair[0] in ("adaptformer", "vpt-deep") or pair[1] in ("none", "bdm")]
IMAGES = torch.randn((3, 3, 32, 32), generator=torch.Generator().manual_seed(3))


def new_backbone(depth: int = 3) -> Backbone:
    arguments = {**SMALL, "depth": depth}
    torch.manual_seed(0)
    backbone = create_backbone("vit_tiny_patch16_224", arguments)
    perturb(backbone.vit, 0.05)
    return create_backbone("vit_tiny_patch16_224", arguments, backbone.vit.state_dict())


def header_of(backbone: Backbone, adapter: str, reducer: str) -> TaskHeader:
    return TaskHeader(
        name="pair",
        backbone=BackboneRef(backbone.architecture, backbone.arguments, backbone.fingerprint),
        adapter=Method(adapter, ARGUMENTS.get(adapter, {})),
        reducer=Method(reducer, ARGUMENTS.get(reducer, {})),
        labels=tuple("abcde"),
        preprocessing=Preprocessing((32, 32)),
    )


def model_of(backbone: Backbone, adapter: str, reducer: str) -> AdaptedViT:
    """A model none of whose parameters is zero, so that each has a part in the answer."""
    torch.manual_seed(1)
    model = new_model(header_of(backbone, adapter, reducer), backbone)
    perturb(model.trainable(), 0.2)
    return model.eval()
