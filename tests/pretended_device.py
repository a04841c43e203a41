"""Runs every adapter with every reducer on a device that there is not, and prints what was in the way of each.

torch's fake tensors have a device and a shape but no numbers. An operator that meets two devices fails on them, and so
does one that needs a number on the CPU, for which a GPU would first have to finish all that it was given. For gradients
torch asks more of a device than its name: hence one that Python registers, for good, in a process of its own.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pairs
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.nn.functional import cross_entropy
from torch.utils import backend_registration

from fpet.backbone import Backbone
from fpet.inference.mixed import Template
from fpet.inference.task_weights import Weights
from fpet.task import Task, save_task
from fpet.vit import AdaptedViT

NAME = "gpu"
IMAGES, TARGETS = torch.zeros(4, 3, 32, 32), torch.zeros(4, dtype=torch.int64)
FAKE = FakeTensorMode()


class Module(backend_registration._DummyBackendModule):  # type: ignore[misc]
    """What autocast asks of a device."""

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16]


def main() -> None:
    """Prints a JSON object: what went wrong, or null, by way and pair."""
    backend_registration._setup_privateuseone_for_python_backend(NAME, backend_module=Module())
    here, there = (pairs.new_backbone(depth=2) for _ in range(2))  # a forward takes longer with each block
    move(there.vit)
    found = {}
    for way, tried in (infer, pairs.PAIRS), (mix, pairs.TRACED), (train, pairs.TRACED):
        for adapter, reducer in tried:
            model = written(here, adapter, reducer, way is train)
            model.backbone, model.vit = there, there.vit
            found[f"{way.__name__} {adapter} {reducer}"] = trouble(way, model)
    print(json.dumps(found))


def written(backbone: Backbone, adapter: str, reducer: str, training: bool) -> AdaptedViT:
    """A model to train, or one that was saved and loaded."""
    model = pairs.model_of(backbone, adapter, reducer)
    if training:
        return model.train()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "pair.safetensors")
        save_task(file, pairs.header_of(backbone, adapter, reducer), model)
        return Task.load(file).build(backbone)


def trouble(way: Callable[[AdaptedViT], Tensor], model: AdaptedViT) -> str | None:
    try:
        device = str(way(model).device)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None if device == f"{NAME}:0" else f"the result is on {device}"


def infer(model: AdaptedViT) -> Tensor:
    move(model.trainable())
    images = moved(IMAGES)
    with FAKE, torch.inference_mode():
        logits: Tensor = model(images)
    return logits


def train(model: AdaptedViT) -> Tensor:
    move(model.trainable())
    images, targets = moved(IMAGES), moved(TARGETS)
    with FAKE:
        tokens, sizes = model.encode(images)
        logits = model.head(model.pool(tokens))
        (cross_entropy(logits, targets) + model.reducer.penalty(sizes)).backward()
        gradients = [parameter.grad for parameter in model.trainable().parameters()]
        return torch.stack([gradient.sum() for gradient in gradients if gradient is not None])


def mix(model: AdaptedViT) -> Tensor:
    own = Weights.of(model)
    one, other = (Weights(*(None if part is None else moved(part) for part in own)) for _ in range(2))
    move(model.trainable())
    template, images = Template(model), moved(IMAGES)
    with FAKE, torch.inference_mode():
        features = template.features([one, other, one, other], images)
        return torch.cat([one.logits(features[::2]), other.logits(features[1::2])])


def move(module: nn.Module) -> None:
    for part in module.modules():
        for name, parameter in part._parameters.items():
            if parameter is not None:
                part._parameters[name] = nn.Parameter(moved(parameter.detach()), parameter.requires_grad)
        for name, buffer in part._buffers.items():
            if buffer is not None:
                part._buffers[name] = moved(buffer)


def moved(tensor: Tensor) -> Tensor:
    return FakeTensor(FAKE, tensor.to("meta"), torch.device(NAME, 0))


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    # Autograd's thread for the device, which nobody can wait for, may be letting go of tensors that Python knows still;
    # an interpreter that takes itself apart meanwhile ends that thread, and C++ then ends the process with SIGABRT.
    os._exit(0)
