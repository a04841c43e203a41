"""The forward of a batch: pixels to the device, embeddings by one of three paths, and each image's own head."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from fpet.inference.task_weights import Weights
from fpet.preprocess import normalize
from service.model.captures import Captures
from service.model.heads import outputs
from service.model.unpacked import Unpacked
from service.model.work import BatchKey, Output, Work

ForwardPath = Literal["mixed", "captured", "folded"]


@dataclass(frozen=True)
class BatchResult:
    """Answers of a batch, the seconds until they were there, and which path it took."""

    outputs: list[Output]
    seconds: float
    path: ForwardPath


class BatchRunner:
    """Runs batches on one device; any thread may call it. captures: forwards to replay, if there are any."""

    def __init__(
        self, device: torch.device, dtype: torch.dtype, unpacked: Unpacked, captures: Captures | None = None
    ) -> None:
        self._device = device
        self._dtype = dtype
        self._unpacked = unpacked
        self._captures = captures

    def run(self, group: BatchKey, works: Sequence[Work]) -> BatchResult:
        """The batch's outputs, one an image, each by its own task, and what they took; all tasks are of the group's
        family."""
        started = time.perf_counter()
        with torch.inference_mode():
            pixels = self._upload([work.pixels for work in works])
            if group.dtype == torch.uint8:
                images = normalize(pixels, [work.task.header.preprocessing for work in works], self._dtype)
            else:
                images = pixels.to(self._dtype)
            weights = {task: self._unpacked.weights(task) for task in dict.fromkeys(work.task for work in works)}
            embeddings, tokens, path = self._features(group, [weights[work.task] for work in works], images)
            # Copying to the CPU waits for the device, so that the clock sees all of the work.
            answers = outputs([work.task for work in works], weights, embeddings, tokens)
        return BatchResult(answers, time.perf_counter() - started, path)

    def timed(self, group: BatchKey, works: Sequence[Work]) -> BatchResult:
        """As `run`, to compare its time with others.

        The seconds are the thread's CPU time if the calling thread alone computes, on a CPU: wall-clock time would
        include other work of the machine.
        """
        alone = self._device.type == "cpu" and torch.get_num_threads() == 1
        clock = time.thread_time if alone else time.perf_counter
        started = clock()
        result = self.run(group, works)
        return replace(result, seconds=clock() - started)

    def _upload(self, images: Sequence[Tensor]) -> Tensor:
        """[3, H, W] each to [B, 3, H, W] on the device."""
        pinned = self._device.type == "cuda"  # from such memory the GPU copies by itself, while this thread goes on
        batch = torch.empty((len(images), *images[0].shape), dtype=images[0].dtype, pin_memory=pinned)
        torch.stack(list(images), out=batch)
        return batch.to(self._device, non_blocking=pinned)

    def _features(
        self, group: BatchKey, weights: Sequence[Weights], images: Tensor
    ) -> tuple[Tensor, list[int], ForwardPath]:
        """Embeddings [B, C] of normalised images [B, 3, H, W], each by its own task's weights; tokens of each."""
        family, reduced = group.family, group.reduced
        tokens = [family.tokens_out if reduced else family.tokens_in] * len(images)
        if group.folded is None and self._captures is not None:
            captured = self._captures.find(family, weights, reduced=reduced)
            if captured is not None:
                return captured.features(weights, images, reduced=reduced), tokens, "captured"
        folded = group.folded
        path: ForwardPath = "mixed" if folded is None else "folded"
        if reduced and family.template.tokens_vary:
            model = family.template.batched(weights) if folded is None else folded.reduced
            sequences = model.tokens(images)
            return model.pool(sequences), sequences.lengths().tolist(), path
        if folded is None:
            return family.template.features(weights, images, reduced=reduced), tokens, path
        return folded.features(images, reduced=reduced), tokens, path
