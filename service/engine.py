"""The backbone and its tasks on one device: images in, logits and embeddings out, timed and counted."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from fpet.backbone import Backbone, load_backbone
from fpet.errors import TaskError
from fpet.header import TaskHeader
from fpet.task import Task
from fpet.vit import AdaptedViT, check_parity
from service.calibration import Point, measure, ratio_at
from service.metrics import Forward, Metrics


@dataclass(frozen=True, eq=False)
class LoadedTask:
    """A task that can answer; it is replaced as a whole and never changed.

    digest, size: of the task file; generation: how often a task of this name was loaded, from 1; tokens_in, tokens_out:
    of one image, with reduction.
    """

    header: TaskHeader
    digest: str
    size: int
    generation: int
    reduced: AdaptedViT
    full: AdaptedViT
    tokens_in: int
    tokens_out: int


@dataclass(frozen=True)
class Group:
    """What the images of one batch have in common."""

    task: LoadedTask
    reduced: bool

    @property
    def model(self) -> AdaptedViT:
        """The model that runs the batch."""
        return self.task.reduced if self.reduced else self.task.full

    @property
    def tokens_out(self) -> int:
        """Tokens of an image after the last block."""
        return self.task.tokens_out if self.reduced else self.task.tokens_in


@dataclass(frozen=True)
class Output:
    """The answer for one image, float32 on the CPU: logits [K], probabilities [K], embedding [C]."""

    logits: Tensor
    probabilities: Tensor
    embedding: Tensor


class Engine:
    """Runs batches. Loading, calibrating and running may happen in different threads at once."""

    def __init__(self, backbone: Backbone, device: torch.device, dtype: torch.dtype, metrics: Metrics) -> None:
        self.backbone = backbone
        self.device = device
        self.dtype = dtype
        self._metrics = metrics
        self._calibrations: dict[str, list[Point]] = {}

    @classmethod
    def start(cls, path: Path, device: torch.device, dtype: torch.dtype, metrics: Metrics) -> Engine:
        """Loads the backbone and compares the forward with timm's before any answer depends on it.

        Raises:
            BackboneError, UnsupportedError: if the file or the installed timm is not what the forward was written for.
        """
        backbone = load_backbone(path)
        check_parity(backbone)
        backbone.vit.to(device=device, dtype=dtype)
        return cls(backbone, device, dtype, metrics)

    def load(self, task: Task, generation: int) -> LoadedTask:
        """Builds a task's models and runs each once, so that what cannot answer is not put into service.

        Raises:
            TaskError: if it does not fit the backbone.
        """
        try:
            reduced = task.build(self.backbone, self.dtype, self.device)
            loaded = LoadedTask(
                header=task.header,
                digest=task.digest,
                size=task.size,
                generation=generation,
                reduced=reduced,
                full=reduced.unreduced(),
                tokens_in=reduced.tokens_in,
                tokens_out=reduced.tokens_out,
            )
            for shortened in (True, False):
                self._forward(Group(loaded, shortened), self._blank(loaded, 1))
        except (AssertionError, RuntimeError) as error:  # timm's and torch's words for shapes that do not fit
            raise TaskError(f"{task.path}: the model cannot run: {error}") from error
        return loaded

    def calibrate(self, task: LoadedTask, batch_size: int, repeats: int) -> None:
        """Runs both forwards of the task once at this batch size, to warm up, and then times them.

        Sizes come in ascending order. Tasks that differ in their weights alone share their timings, and those without
        a reducer have nothing to compare.
        """
        points = self._calibrations.setdefault(_structure(task), [])
        if task.tokens_out == task.tokens_in or any(point.batch_size >= batch_size for point in points):
            return
        images = self._blank(task, batch_size)

        def seconds(reduced: bool) -> float:
            return self._forward(Group(task, reduced), images).seconds

        seconds(True), seconds(False)
        if repeats:
            points.append(measure(batch_size, repeats, seconds))

    def calibration(self, task: LoadedTask) -> tuple[Point, ...]:
        """The timings that the task's baseline rests on."""
        return tuple(self._calibrations.get(_structure(task), ()))

    def run(self, group: Group, images: Sequence[Tensor]) -> list[Output]:
        """One output an image; images: uint8 [3, H, W], of the size that the task asks for."""
        passed = self._forward(group, images)
        self._metrics.count_batch([self._cost(group, len(images), passed.seconds)])
        probabilities = passed.logits.softmax(dim=1)
        return [Output(*one) for one in zip(passed.logits, probabilities, passed.embeddings, strict=True)]

    def _forward(self, group: Group, images: Sequence[Tensor]) -> _Passed:
        started = time.perf_counter()
        with torch.inference_mode():
            pixels = torch.stack(list(images)).to(self.device)
            embeddings = group.model.features(group.task.header.preprocessing.normalize(pixels, self.dtype))
            logits = group.model.head(embeddings)
            # Copying to the CPU waits for the device, so that the clock sees all of the work.
            embeddings, logits = embeddings.float().cpu(), logits.float().cpu()
        return _Passed(embeddings, logits, time.perf_counter() - started)

    def _cost(self, group: Group, images: int, seconds: float) -> Forward:
        task = group.task
        return Forward(
            task=task.header.name,
            reduced=group.reduced,
            images=images,
            tokens_in=images * task.tokens_in,
            tokens_out=images * group.tokens_out,
            seconds=seconds,
            baseline_seconds=self._baseline(task, images, seconds) if group.reduced else None,
        )

    def _baseline(self, task: LoadedTask, images: int, seconds: float) -> float | None:
        if task.tokens_out == task.tokens_in:
            return seconds
        points = self.calibration(task)
        return seconds * ratio_at(points, images) if points else None

    def _blank(self, task: LoadedTask, batch_size: int) -> list[Tensor]:
        return [torch.zeros((3, *task.header.preprocessing.size), dtype=torch.uint8)] * batch_size


@dataclass(frozen=True)
class _Passed:
    embeddings: Tensor  # [B, C] float32, CPU
    logits: Tensor  # [B, K] float32, CPU
    seconds: float


def _structure(task: LoadedTask) -> str:
    """All that the time of a forward depends on."""
    header = task.header
    return repr((header.adapter, header.reducer, header.preprocessing.size))
