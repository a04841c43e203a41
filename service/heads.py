"""Embeddings to answers: the last step of a batch, in which each image has its own task's head."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from fpet.task_weights import Weights
from service.loaded import LoadedTask
from service.work import Output


def outputs(
    tasks: Sequence[LoadedTask], weights: Mapping[LoadedTask, Weights], embeddings: Tensor, tokens: Sequence[int]
) -> list[Output]:
    """The answer for each row of the embeddings [B, C], the i-th by the i-th task; tasks differ in how many classes.

    tokens: how many each of the images had after the last block.

    All heads run before the first of their logits is awaited, so that a GPU waits for nobody in between.
    """
    rows = {task: [row for row, other in enumerate(tasks) if other is task] for task in weights}
    each = [own.logits(_pick(embeddings, rows[task])) for task, own in weights.items()]
    together = torch.cat([logits.flatten() for logits in each]).float().cpu()
    vectors = embeddings.float().cpu()
    answers: dict[int, Output] = {}
    for own_rows, flat, like in zip(rows.values(), together.split([one.numel() for one in each]), each, strict=True):
        logits = flat.view(like.shape)
        left = [tokens[row] for row in own_rows]
        finite = logits.isfinite().all(dim=1).tolist()
        own = zip(logits, logits.softmax(dim=1), vectors[own_rows], left, finite, strict=True)
        answers |= {row: Output(*answer) for row, answer in zip(own_rows, own, strict=True)}
    return [answers[row] for row in range(len(tasks))]


def _pick(embeddings: Tensor, rows: Sequence[int]) -> Tensor:
    """Rows of the embeddings. Those that lie together are a view; an index of others is a copy to the device."""
    if rows[-1] - rows[0] + 1 == len(rows):
        return embeddings[rows[0] : rows[-1] + 1]
    pinned = embeddings.device.type == "cuda"
    index = torch.tensor(rows, pin_memory=pinned).to(embeddings.device, non_blocking=pinned)
    return embeddings.index_select(0, index)
