"""What the engine is given and gives back: images, those that can share a batch, and answers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fpet.inference.task_weights import Weights
from service.model.folded import Instance
from service.model.loaded import Family, LoadedTask

Floats = NDArray[np.float32]


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
    """The answer for one image: logits [K], probabilities [K], embedding [C].

    They are arrays because the event loop has them, and torch gives the interpreter's lock away for each of its
    operators and each tensor that is freed.

    tokens: how many it had after the last block; finite: whether the logits are numbers, as they are not
    if the embedding is not.
    """

    logits: Floats
    probabilities: Floats
    embedding: Floats
    tokens: int
    finite: bool


def top_indices(values: Floats, count: int) -> list[int]:
    """Where the largest of them are, the largest first; count: how many, at most as there are."""
    largest = np.argpartition(values, -count)[-count:]
    return cast(list[int], largest[np.argsort(-values[largest])].tolist())


def blank(task: LoadedTask) -> Work:
    """A black image for a task, to try it with."""
    return Work(task, torch.zeros((3, *task.header.preprocessing.size), dtype=torch.uint8))


def twins(task: LoadedTask, count: int) -> list[Work]:
    """Black images of two tasks with the same weights, which are two all the same."""
    weights = task.weights
    twin = replace(task, weights=Weights(*weights) if isinstance(weights, Weights) else weights)
    return [blank(twin if index % 2 else task) for index in range(count)]
