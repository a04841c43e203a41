"""Small models of timm and transformers, tuned by the peft library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import timm
import torch
from peft import LoraConfig, get_peft_model
from small import ARCHITECTURE, ARGUMENTS
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import (
    DeiTConfig,
    DeiTForImageClassification,
    TimmWrapperConfig,
    TimmWrapperForImageClassification,
    ViTConfig,
    ViTForImageClassification,
)

from fpet.backbone import create_backbone, load_backbone, save_backbone
from fpet.cli import main
from fpet.task import Task

IMAGES = torch.randn((4, 3, 16, 16), generator=torch.Generator().manual_seed(0))
CLASSES = 5
SIZES: dict[str, Any] = {
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 48,
    "image_size": 16,
    "patch_size": 4,
    "num_labels": CLASSES,
}
HUGGING_FACE: dict[str, tuple[type[Any], type[Any]]] = {
    "vit": (ViTConfig, ViTForImageClassification),
    "deit": (DeiTConfig, DeiTForImageClassification),
}


def timm_model() -> nn.Module:
    torch.manual_seed(0)
    return timm.create_model(ARCHITECTURE, num_classes=CLASSES, **ARGUMENTS)


def wrapped_timm_model() -> Any:
    """The same model in transformers."""
    config = TimmWrapperConfig(architecture=ARCHITECTURE, num_labels=CLASSES, model_args=ARGUMENTS)
    model = TimmWrapperForImageClassification(config)
    model.timm_model.load_state_dict(timm_model().state_dict())
    return model


def hugging_face_model(kind: str = "vit") -> Any:
    """Random weights, as the library draws them."""
    torch.manual_seed(0)
    config, model = HUGGING_FACE[kind]
    return model(config(**SIZES))


def logits_of(model: Any) -> Tensor:
    with torch.inference_mode():
        answer = model.eval()(IMAGES)
    return answer if isinstance(answer, Tensor) else answer.logits


def tuned(model: Any, head: str, targets: list[str] | str, **changes: Any) -> Any:
    """LoRA by the peft library, trained a few steps."""
    config: dict[str, Any] = {"r": 4, "lora_alpha": 6, "lora_dropout": 0.1, "modules_to_save": [head]}
    tuned = get_peft_model(model, LoraConfig(target_modules=targets, **(config | changes)))
    parameters = [parameter for parameter in tuned.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=0.05)
    for _ in range(3):
        answer = tuned(IMAGES)
        logits = answer if isinstance(answer, Tensor) else answer.logits
        F.cross_entropy(logits, torch.arange(4)).backward()
        optimizer.step()
        optimizer.zero_grad()
    return tuned


def save_timm_backbone(model: nn.Module, path: Path) -> Path:
    state = {name: value for name, value in model.state_dict().items() if not name.startswith("head.")}
    save_backbone(path, create_backbone(ARCHITECTURE, ARGUMENTS, state))
    return path


def convert(source: Path, output: Path, *more: str) -> None:
    assert main(["convert", str(source), "--output", str(output), *more]) == 0


def logits_of_task(task: Path, backbone: Path) -> Tensor:
    return logits_of(Task.load(task).build(load_backbone(backbone)))
