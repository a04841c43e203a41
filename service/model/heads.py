"""Embeddings to answers: the last step of a batch, in which each image goes through its own task's head."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from fpet.inference.task_weights import Weights
from service.model.loaded import LoadedTask
from service.model.work import Output


def outputs(
    tasks: Sequence[LoadedTask], weights: Mapping[LoadedTask, Weights], embeddings: Tensor, tokens: Sequence[int]
) -> list[Output]:
    """The answer for each row of the embeddings [B, C], the i-th by the i-th task; tasks differ in how many classes.

    tokens: how many each of the images had after the last block.

    All heads run before the first of their logits is awaited, so that a GPU waits for nobody in between.
    """
    rows = {task: [row for row, other in enumerate(tasks) if other is task] for task in weights}
    each = [own.logits(_pick(embeddings, rows[task])) for task, own in weights.items()]
    together = torch.cat([one.flatten() for one in each]).float().cpu().numpy()
    vectors = embeddings.float().cpu().numpy()
    # Tasks with fewer classes than others have impossible ones, so that one softmax does for all.
    logits = np.full((len(tasks), max(one.shape[1] for one in each)), -np.inf, np.float32)
    start = 0
    for own_rows, one in zip(rows.values(), each, strict=True):
        logits[own_rows, : one.shape[1]] = together[start : start + one.numel()].reshape(one.shape)
        start += one.numel()
    probabilities = torch.from_numpy(logits).softmax(dim=1).numpy()
    answers = []
    for row, task in enumerate(tasks):
        own = slice(len(task.header.labels))
        finite = bool(np.isfinite(logits[row, own]).all())
        answers.append(Output(logits[row, own], probabilities[row, own], vectors[row], tokens[row], finite))
    return answers


def _pick(embeddings: Tensor, rows: Sequence[int]) -> Tensor:
    """Rows of the embeddings. Those that lie together are a view; an index of others is a copy to the device."""
    if rows[-1] - rows[0] + 1 == len(rows):
        return embeddings[rows[0] : rows[-1] + 1]
    pinned = embeddings.device.type == "cuda"
    index = torch.tensor(rows, pin_memory=pinned).to(embeddings.device, non_blocking=pinned)
    return embeddings.index_select(0, index)
