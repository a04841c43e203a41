"""Embeddings to answers: the last step of a batch, in which each image has its own task's head."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

from fpet.task_weights import Weights
from service.loaded import LoadedTask
from service.work import Output


def outputs(tasks: Sequence[LoadedTask], weights: Mapping[LoadedTask, Weights], embeddings: Tensor) -> list[Output]:
    """The answer for each row of the embeddings [B, C], the i-th by the i-th task; tasks differ in how many classes."""
    answers: dict[int, Output] = {}
    vectors = embeddings.float().cpu()
    for task, own in weights.items():
        rows = [row for row, other in enumerate(tasks) if other is task]
        logits = own.logits(embeddings[rows]).float().cpu()
        each = zip(logits, logits.softmax(dim=1), vectors[rows], strict=True)
        answers |= {row: Output(*answer) for row, answer in zip(rows, each, strict=True)}
    return [answers[row] for row in range(len(tasks))]
