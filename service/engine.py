"""The backbone and its tasks on one device: images in, logits and embeddings out, timed and counted."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from weakref import WeakSet, WeakValueDictionary

import torch
from torch import Tensor

from fpet.backbone import Backbone, load_backbone
from fpet.errors import TaskError
from fpet.groups import token_of_patch
from fpet.inference.mixed import family
from fpet.inference.packed_weights import at_rest
from fpet.inference.unit_scale import at_unit_scale
from fpet.task import Task
from fpet.vit import AdaptedViT, check_parity
from service.metrics import Metrics, TaskCost
from service.model.batch_runner import BatchResult, BatchRunner
from service.model.calibration import measure_point
from service.model.captures import Captures
from service.model.folded import Instance
from service.model.loaded import Family, LoadedTask
from service.model.programs import ProgramMaker
from service.model.timings import timings_by_family
from service.model.unpacked import Unpacked
from service.model.work import BatchKey, Output, Work, blank, twins

# Seconds for one batch size of a family: of small batches each timing says little, of large ones a few say enough.
_SHORTEST_TIMING, _LONGEST_TIMING = 0.25, 1.5
# Families whose timings are kept for when they come back into service.
_FAMILIES = 256


class Engine:
    """Runs batches. Loading, calibrating and running may happen in different threads at once.

    unpacked_bytes: for the dequantised weights of packed tasks; source: the backbone's file, or None if it
    serves in float32 on the CPU itself; captures: of forwards that are replayed, where that is faster.
    """

    def __init__(
        self,
        backbone: Backbone,
        device: torch.device,
        dtype: torch.dtype,
        metrics: Metrics,
        *,
        unpacked_bytes: int = 0,
        source: Path | None = None,
        captures: Captures | None = None,
    ) -> None:
        self.backbone = backbone
        self.device = device
        self.dtype = dtype
        self._metrics = metrics
        self.source = source
        self.unpacked = Unpacked(unpacked_bytes)
        self.captures = captures
        self.program_maker = ProgramMaker(device, backbone.vit)
        self._runner = BatchRunner(device, dtype, self.unpacked, captures)
        self._families: WeakValueDictionary[str, Family] = WeakValueDictionary()
        self._checked: WeakSet[Family] = WeakSet()
        self._making = threading.Lock()
        self._timings = timings_by_family(_FAMILIES)
        self._orders = itertools.cycle([(True, False), (False, True)])

    @classmethod
    def start(
        cls,
        path: Path,
        device: torch.device,
        dtype: torch.dtype,
        metrics: Metrics,
        *,
        unpacked_bytes: int = 0,
        captures: Captures | None = None,
    ) -> Engine:
        """Loads the backbone and compares the forward with timm's before any answer depends on it.

        Raises:
            BackboneError, UnsupportedError: if the file or the installed timm is not what the forward was written for,
                or there is no such device.
        """
        backbone = load_backbone(path)
        check_parity(backbone)
        backbone.move(device, dtype)
        source = None if (device.type, dtype) == ("cpu", torch.float32) else path
        return cls(backbone, device, dtype, metrics, unpacked_bytes=unpacked_bytes, source=source, captures=captures)

    def load(self, task: Task, generation: int) -> LoadedTask:
        """Builds a task and runs it once, so that what cannot answer is not put into service.

        Raises:
            TaskError: if it does not fit the backbone or into memory, or its numbers overflow.
        """
        try:
            served = at_unit_scale(task)
            model = served.build(self.backbone)
            # Mixing tasks stacks their weights, which is no use where those are as large as the backbone.
            name = family(served.header) if model.mixes else task.digest
            common = self._family(name, task, model)
            loaded = LoadedTask(
                path=task.path,
                header=common.share(task.header),
                digest=task.digest,
                size=task.size,
                generation=generation,
                family=common,
                weights=at_rest(model, served.tensors),
            )
            # Without reduction a task runs as its family does.
            for shortened in (True,) if common in self._checked else (True, False):
                self.check(BatchKey(common, shortened), loaded)
        except RuntimeError as error:  # torch's word for too little memory
            raise TaskError(f"{task.path}: the model cannot run: {error}") from error
        self._checked.add(common)
        return loaded

    def _family(self, name: str, task: Task, model: AdaptedViT) -> Family:
        """That of this name, which is made once, though several threads may load tasks of it; else they would never
        share a batch."""
        with self._making:
            known = self._families.get(name)
            return known or self._families.setdefault(name, Family.of(name, task.header, model, self._timings(name)))

    def check(self, group: BatchKey, task: LoadedTask) -> None:
        """Raises TaskError if the task's answer to a blank image is not finite."""
        (output,) = self._runner.run(group, [blank(task)]).outputs
        if not output.finite:
            raise TaskError(f"{task.path}: the model cannot run: its answer to a blank image is not finite")

    def calibrate(
        self, task: LoadedTask, batch_size: int, repeats: int, folded: Instance | None = None, *, mixed: bool = False
    ) -> None:
        """Runs the task's forwards once at this batch size, to warm up, and then times them.

        mixed: warms a batch of several tasks up as well, where there may be one.

        Tasks of a family share their timings, and its folded tasks share others. Tasks without a reducer have nothing
        to compare. Where each image decides how many tokens it keeps, timings of blank images say nothing of others,
        and only shadows compare. What could not be timed is tried again the next time.
        """

        def seconds(reduced: bool) -> float:
            return self.seconds(BatchKey(task.family, reduced, folded), task, batch_size)

        if folded is None and self.program_maker.claim(task.family):
            self.program_maker.add_to(task.family, self.unpacked.weights(task), mixed=mixed)
        if folded is None and self.captures is not None and self.captures.wants(task.family, batch_size):
            self._capture(self.captures, task, batch_size, mixed=mixed and batch_size > 1)
        timings = task.family.timings
        if not repeats:
            timings.give_up()
        with timings.attempt(folded is not None, batch_size) as first:
            if not first:
                return
            seconds(True)
            if mixed and batch_size > 1 and task.family.template.mixes:
                # One task alone does not need all operators that several do, which a GPU loads when it meets them.
                self._runner.run(BatchKey(task.family, True), twins(task, batch_size))
            varies = task.family.template.tokens_vary
            if task.tokens_out == task.tokens_in and not varies:
                return
            seconds(False)
            if repeats and not varies:  # how many tokens a blank image keeps says nothing of others
                point = measure_point(batch_size, repeats, seconds, shortest=_SHORTEST_TIMING, longest=_LONGEST_TIMING)
                for joined in timings.join(folded is not None, point):
                    self._metrics.count_baseline(*joined)

    def _capture(self, captures: Captures, task: LoadedTask, batch_size: int, *, mixed: bool) -> None:
        own = self.unpacked.weights(task)
        batches = [[own] * batch_size]
        if mixed:  # with weights of its own an image, so that a row in the place of another shows
            batches.append([own._replace(flat=own.flat * (1 + row / batch_size)) for row in range(batch_size)])
        captures.add(task.family, batches, task.header.preprocessing.size)

    def run(self, group: BatchKey, works: Sequence[Work]) -> list[Output]:
        """One output an image, each by its own task; all tasks are of the group's family."""
        result = self._runner.run(group, works)
        self._metrics.count_batch(self._costs(group, [work.task for work in works], result))
        self._metrics.batches.labels(result.path).inc()
        return result.outputs

    def shadow(self, group: BatchKey, works: Sequence[Work]) -> None:
        """Runs a batch again with token reduction and without, and counts how long both took and where they agree."""
        # Each is first in turn: whichever is finds the caches as others left them.
        results = {
            reduced: self._runner.timed(replace(group, reduced=reduced), works) for reduced in next(self._orders)
        }
        tasks, reduced, full = [work.task.header.name for work in works], results[True], results[False]
        both = zip(reduced.outputs, full.outputs, strict=True)
        agree = [int(a.logits.argmax()) == int(b.logits.argmax()) for a, b in both]
        self._metrics.count_shadow(tasks, agree, reduced_seconds=reduced.seconds, full_seconds=full.seconds)

    def token_of_patch(self, work: Work) -> Tensor:
        """For each patch of an image the token that holds it after the last block, int64 [rows, columns] on the CPU.

        Raises:
            UnsupportedError: if the task's reduction shares out patches among tokens.
        """
        images = work.task.header.preprocessing.normalize(work.pixels[None].to(self.device), self.dtype)
        model = work.task.family.template.model(self.unpacked.weights(work.task).flat)
        return token_of_patch(model, images)[0].cpu()

    def seconds(self, group: BatchKey, task: LoadedTask, batch_size: int, *, several: bool = False) -> float:
        """Seconds that a batch of blank images of the task takes: CPU time if the calling thread alone computes, on a
        CPU, else wall-clock time. No metric counts it. several: as if the images were of several tasks."""
        works = twins(task, batch_size) if several else [blank(task)] * batch_size
        return self._runner.timed(group, works).seconds

    def run_bare(self, batch_size: int) -> None:
        """Runs the backbone alone on blank images."""
        vit: Any = self.backbone.vit
        images = torch.zeros((batch_size, 3, *vit.patch_embed.img_size), dtype=self.dtype, device=self.device)
        with torch.inference_mode():
            vit.forward_features(images).cpu()  # which waits for the device

    def _costs(self, group: BatchKey, tasks: Sequence[LoadedTask], result: BatchResult) -> list[TaskCost]:
        """The batch, divided among its tasks by their shares of the images."""
        left: Counter[LoadedTask] = Counter()
        for task, output in zip(tasks, result.outputs, strict=True):
            left[task] += output.tokens
        seconds = result.seconds / len(tasks)
        return [
            TaskCost(
                task=task.header.name,
                reduced=group.reduced,
                images=images,
                tokens_in=images * task.tokens_in,
                tokens_out=left[task],
                seconds=seconds * images,
                baseline_seconds=self._baseline(group, task, len(tasks), seconds * images),
            )
            for task, images in Counter(tasks).items()
        ]

    def _baseline(self, group: BatchKey, task: LoadedTask, batch_size: int, seconds: float) -> float | None:
        if not group.reduced or task.family.template.tokens_vary:
            return None
        if task.tokens_out == task.tokens_in:
            return seconds
        return task.family.timings.baseline(group.folded is not None, task.header.name, batch_size, seconds)
