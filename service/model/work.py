"""What the engine takes and returns: images of tasks, what images of a batch have in common, and answers."""

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
class BatchKey:
    """What the images of a batch have in common; dtype: of their pixels. A folded task has keys of its own."""

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

    They are NumPy arrays because the event loop handles them: torch releases the interpreter lock in each operator, and
    when a tensor is freed, after which the loop would wait for other threads.

    tokens: how many it had after the last block; finite: whether the logits are numbers, as they are not
    if the embedding is not.
    """

    logits: Floats
    probabilities: Floats
    embedding: Floats
    tokens: int
    finite: bool


def top_indices(values: Floats, count: int) -> list[int]:
    """Indices of the largest values, the largest first; count: how many, at most as many as there are."""
    largest = np.argpartition(values, -count)[-count:]
    return cast(list[int], largest[np.argsort(-values[largest])].tolist())


def blank(task: LoadedTask) -> Work:
    """A black image for a task, to warm it up, time it or check it."""
    return Work(task, torch.zeros((3, *task.header.preprocessing.size), dtype=torch.uint8))


def twins(task: LoadedTask, count: int) -> list[Work]:
    """Black images, in turn of a task and of a copy of it with the same weights: a batch of two tasks."""
    weights = task.weights
    twin = replace(task, weights=Weights(*weights) if isinstance(weights, Weights) else weights)
    return [blank(twin if index % 2 else task) for index in range(count)]
