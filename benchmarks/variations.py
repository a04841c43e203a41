"""Tasks of one family that differ in their weights alone."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import torch

from fpet.backbone import Backbone
from fpet.header import TaskHeader
from fpet.task import Task, new_model, save_task
from fpet.vit import AdaptedViT

_NOISE = 0.01


def write_variations(folder: Path, header: TaskHeader, model: AdaptedViT, count: int) -> list[str]:
    """Writes so many tasks, each the one before moved a little at random, which moves the model; returns their names.

    header: of weights that are not quantised, for else they may move and the model not.
    """
    generator = torch.Generator().manual_seed(0)
    names = [f"task-{i:02}" for i in range(count)]
    with torch.no_grad():
        for name in names:
            for parameter in model.trainable().parameters():
                parameter.add_(_NOISE * torch.randn(parameter.shape, generator=generator))
            save_task(folder / f"{name}.safetensors", dataclasses.replace(header, name=name), model)
    return names


def unquantised(task: Task, backbone: Backbone) -> tuple[TaskHeader, AdaptedViT]:
    """The same task with weights of 32 bits, which can be changed and written anew."""
    adapter, reducer = (
        dataclasses.replace(method, arguments={**method.arguments, "bits": 32})
        for method in (task.header.adapter, task.header.reducer)
    )
    head = dataclasses.replace(task.header.head, bits=32)
    header = dataclasses.replace(task.header, adapter=adapter, reducer=reducer, head=head)
    model = new_model(header, backbone)
    model.trainable().load_state_dict(task.build(backbone).trainable().state_dict())
    return header, model.eval()
