"""A task from its header to its tested model, with the adapter's scale chosen on validation images if asked."""

from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fpet.adapters import ADAPTERS
from fpet.backbone import Backbone
from fpet.data import Dataset
from fpet.errors import DivergedError, UnsupportedError
from fpet.evaluation import Evaluation, evaluate
from fpet.header import Method, TaskHeader
from fpet.registry import keyword_parameters, refuse_untrainable
from fpet.task import Task, save_task, task_on_meta
from fpet.task_checks import check_backbone
from fpet.training.checkpoint import run_name
from fpet.training.mixed_precision import mixed_precision
from fpet.training.parallel import ALONE, Processes
from fpet.training.provenance import check_recordable, provenance
from fpet.training.recipe import Recipe
from fpet.training.run import Trained
from fpet.training.start import kept_parts
from fpet.training.train import train

logger = logging.getLogger(__name__)

_TESTED_AT_ONCE = 64
_SCALE = "scale"


@dataclass(frozen=True)
class Fitted:
    """A model that was chosen on validation images alone, and what it was trained with.

    header: its task, with the scale that was chosen; tried: of each scale the epoch, and accuracy and loss on the
    validation images, or how it diverged, empty if there was nothing to choose from; checkpoints: of all trainings,
    still on the disk, save those that diverged in their first epoch; start: the task that it began with, if any.
    """

    header: TaskHeader
    trained: Trained
    tried: list[dict[str, Any]]
    checkpoints: list[Path]
    dataset: Dataset
    recipe: Recipe
    start: Task | None = None

    def save(self, path: str | os.PathLike[str]) -> Evaluation:
        """Looks at the test images, once, writes the task with its provenance, and removes the checkpoints.

        Raises:
            DataError, UnsupportedError: as `evaluate_fitted`.
            TaskError: as `save_task`.
        """
        header, tested = evaluate_fitted(self)
        save_task(path, header, self.trained.model)
        for checkpoint in self.checkpoints:
            checkpoint.unlink(missing_ok=True)
        return tested


def fit(
    header: TaskHeader,
    backbone: Backbone,
    dataset: Dataset,
    recipe: Recipe,
    checkpoint: str | os.PathLike[str],
    *,
    scales: Sequence[float] = (),
    tensorboard: str | os.PathLike[str] | None = None,
    group: Processes = ALONE,
    start: Task | None = None,
) -> Fitted:
    """Trains the task, or with `scales` one task for each and keeps the best on the validation images.

    start: a task whose weights it begins with, where the methods are the same (`first_model`).

    A scale with which training diverges is out; the others go on.

    Each training has a checkpoint, `checkpoint` or that name with its scale, and a folder of that name in
    `tensorboard`. Called again after it was killed it goes on, and trainings that were finished are not repeated.

    Raises:
        UnsupportedError: if the adapter has no scale to search for, or one is given already; as `refuse_untrainable`.
        DataError, TaskError, UnsupportedError: as `train`; as `check_recordable`.
        DivergedError: if the training diverges, or those with all scales do.
    """
    check_recordable(dataset)
    candidates, paths = _candidates(header, scales), checkpoints_of(Path(checkpoint), scales)
    attempts: list[tuple[TaskHeader, Trained | DivergedError]] = []
    for task, path in zip(candidates, paths, strict=True):
        if scales:
            _log(group, task, "")
        log = tensorboard and Path(tensorboard, run_name(path))
        try:
            trained = train(task, backbone, dataset, recipe, path, tensorboard=log, group=group, start=start)
            attempts.append((task, trained))
        except DivergedError as error:  # in every process of the group: they have one loss
            if not scales:
                raise
            _log(group, task, f" is out: {error}")
            # Its traceback's frames hold the run, with all images on the device: memory that the next one needs.
            attempts.append((task, error.with_traceback(None)))
    tried = [_told(*attempt) for attempt in attempts if scales]
    return Fitted(*_best(attempts), tried, paths, dataset, recipe, start)


def _log(group: Processes, task: TaskHeader, what: str) -> None:
    if group.rank == 0:
        logger.info("%s: %s%s", task.name, _scale_of(task), what)


def _scale_of(task: TaskHeader) -> str:
    return f"{_SCALE} {task.adapter.arguments[_SCALE]}"


def _best(attempts: Sequence[tuple[TaskHeader, Trained | DivergedError]]) -> tuple[TaskHeader, Trained]:
    """The one that did best on the validation images; raises DivergedError if all diverged."""
    fits = [(task, outcome) for task, outcome in attempts if isinstance(outcome, Trained)]
    if not fits:
        raise DivergedError("; ".join(f"{_scale_of(task)}: {error}" for task, error in attempts))
    return max(fits, key=lambda pair: (pair[1].accuracy, -pair[1].loss))


def _told(task: TaskHeader, outcome: Trained | DivergedError) -> dict[str, Any]:
    """What a task file says of a scale that was tried."""
    scale = {_SCALE: task.adapter.arguments[_SCALE]}
    if isinstance(outcome, DivergedError):
        return {**scale, "diverged": str(outcome)}
    return {**scale, "epoch": outcome.epoch, "accuracy": outcome.accuracy, "loss": outcome.loss}


def checkpoints_of(checkpoint: Path, scales: Sequence[float]) -> list[Path]:
    """The checkpoints of all trainings of `fit`: one for each scale, or `checkpoint` if there is none to choose."""
    names = [f"{checkpoint.stem}.{_SCALE}-{scale}{checkpoint.suffix}" for scale in dict.fromkeys(scales)]
    return [checkpoint.with_name(name) for name in names] or [checkpoint]


def check_fit(
    header: TaskHeader,
    backbone: Backbone,
    recipe: Recipe,
    scales: Sequence[float] = (),
    start: Task | None = None,
) -> None:
    """Checks that `fit` could train this, as far as that can be said without data.

    Raises:
        UnsupportedError: as `fit`, save for a batch that cannot be shared.
        TaskError: as `first_model`.
    """
    mixed_precision(backbone.device, recipe.precision)
    if start is not None:
        check_backbone(start.path, start.header, backbone)
    for candidate in _candidates(header, scales):
        task_on_meta(candidate, backbone.geometry)
        if start is not None:
            kept_parts(candidate, start)


def evaluate_fitted(fitted: Fitted) -> tuple[TaskHeader, Evaluation]:
    """Looks at the test images, once and after all choices; returns the header with its provenance, and the result.

    Raises:
        DataError, UnsupportedError: as `evaluate`.
    """
    # In no larger batches than those of the training: there may be no memory for them.
    size = min(_TESTED_AT_ONCE, fitted.recipe.batch_size)
    tested = evaluate(fitted.trained.model, fitted.dataset.test, fitted.header.preprocessing, size)
    origin = provenance(fitted.dataset, fitted.recipe, fitted.trained, tested)
    if fitted.tried:
        origin["scale_search"] = fitted.tried
    if fitted.start:
        origin["start"] = {"name": fitted.start.header.name, "digest": fitted.start.digest}
    return dataclasses.replace(fitted.header, provenance=origin), tested


def _candidates(header: TaskHeader, scales: Sequence[float]) -> list[TaskHeader]:
    """The task with each scale, or as it is if there is none to choose from; refuses what cannot be trained."""
    candidates = _scaled(header, scales) if scales else [header]
    for candidate in candidates:
        for method in (candidate.adapter, candidate.reducer):
            refuse_untrainable(method.kind, method.arguments)
    return candidates


def _scaled(header: TaskHeader, scales: Sequence[float]) -> list[TaskHeader]:
    kind, arguments = header.adapter.kind, header.adapter.arguments
    if kind in ADAPTERS and _SCALE not in keyword_parameters(ADAPTERS[kind]):
        raise UnsupportedError(f"{kind} has no argument {_SCALE!r} to search for")
    if _SCALE in arguments:
        raise UnsupportedError(f"{kind}: {_SCALE} = {arguments[_SCALE]} is given, so there is none to search for")
    return [
        dataclasses.replace(header, adapter=Method(kind, {**arguments, _SCALE: scale}))
        for scale in dict.fromkeys(scales)
    ]
