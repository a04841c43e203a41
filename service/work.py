"""What the engine is given and gives back: images, those that can share a batch, and answers."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fpet.task_weights import Weights
from service.folded import Instance
from service.loaded import Family, LoadedTask


@dataclass(frozen=True)
class Group:
    """What the images of a batch have in common, dtype that of their pixels; a folded task has groups to itself."""

    family: Family
    reduced: bool
    folded: Instance | None = None
    dtype: torch.dtype = torch.uint8


@dataclass(frozen=True, eq=False)
class Work:
    """An image to be classified by a task; pixels: [3, H, W], of the size that the task asks for, uint8 or, if they are
    normalised as it asks, float32."""

    task: LoadedTask
    pixels: Tensor


@dataclass(frozen=True)
class Output:
    """The answer for one image, float32 on the CPU: logits [K], probabilities [K], embedding [C].

    tokens: how many it had after the last block; finite: whether the logits are numbers, as they are not
    if the embedding is not.
    """

    logits: Tensor
    probabilities: Tensor
    embedding: Tensor
    tokens: int
    finite: bool


def blank(task: LoadedTask) -> Work:
    """A black image for a task, to try it with."""
    return Work(task, torch.zeros((3, *task.header.preprocessing.size), dtype=torch.uint8))


def twins(task: LoadedTask, count: int) -> list[Work]:
    """Black images of two tasks with the same weights, which are two all the same."""
    weights = task.weights
    twin = replace(task, weights=Weights(*weights) if isinstance(weights, Weights) else weights)
    return [blank(twin if index % 2 else task) for index in range(count)]
