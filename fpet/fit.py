"""A task from its header to its tested model, with the adapter's scale chosen on validation images if asked."""

from __future__ import annotations

import dataclasses
import inspect
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fpet.adapters import ADAPTERS
from fpet.backbone import Backbone
from fpet.checkpoint import run_name
from fpet.data import Dataset
from fpet.errors import UnsupportedError
from fpet.evaluate import Evaluation, evaluate
from fpet.header import Method, TaskHeader
from fpet.parallel import ALONE, Group
from fpet.provenance import provenance
from fpet.recipe import Recipe
from fpet.registry import refuse_untrainable
from fpet.run import Trained, mixed_precision
from fpet.task import blueprint
from fpet.train import train

_SCALE = "scale"


@dataclass(frozen=True)
class Fitted:
    """A model that was chosen on validation images alone.

    header: its task, with the scale that was chosen; tried: of each scale the epoch, and accuracy and loss on the
    validation images, empty if there was nothing to choose from; checkpoints: of all trainings, still on the disk.
    """

    header: TaskHeader
    trained: Trained
    tried: list[dict[str, Any]]
    checkpoints: list[Path]


def fit(
    header: TaskHeader,
    backbone: Backbone,
    dataset: Dataset,
    recipe: Recipe,
    checkpoint: str | os.PathLike[str],
    *,
    scales: Sequence[float] = (),
    tensorboard: str | os.PathLike[str] | None = None,
    group: Group = ALONE,
) -> Fitted:
    """Trains the task, or with `scales` one task for each and keeps the best on the validation images.

    Each training has a checkpoint, `checkpoint` or that name with its scale, and a folder of that name in
    `tensorboard`. Called again after it was killed it goes on, and trainings that were finished are not repeated.

    Raises:
        UnsupportedError: if the adapter has no scale to search for, or one is given already; as `refuse_untrainable`.
        DataError, TaskError, UnsupportedError: as `train`.
    """
    candidates, paths = _candidates(header, scales), checkpoints_of(Path(checkpoint), scales)
    fits: list[tuple[TaskHeader, Trained]] = []
    for candidate, path in zip(candidates, paths, strict=True):
        log = tensorboard and Path(tensorboard, run_name(path))
        trained = train(candidate, backbone, dataset, recipe, path, tensorboard=log, group=group)
        fits.append((candidate, trained))
    best, trained = max(fits, key=lambda pair: (pair[1].accuracy, -pair[1].loss))
    tried = [
        {_SCALE: task.adapter.arguments[_SCALE], "epoch": one.epoch, "accuracy": one.accuracy, "loss": one.loss}
        for task, one in fits
        if scales
    ]
    return Fitted(best, trained, tried, paths)


def checkpoints_of(checkpoint: Path, scales: Sequence[float]) -> list[Path]:
    """The checkpoints of all trainings of `fit`: one for each scale, or `checkpoint` if there is none to choose."""
    names = [f"{checkpoint.stem}.{_SCALE}-{scale}{checkpoint.suffix}" for scale in dict.fromkeys(scales)]
    return [checkpoint.with_name(name) for name in names] or [checkpoint]


def check_fit(header: TaskHeader, backbone: Backbone, recipe: Recipe, scales: Sequence[float] = ()) -> None:
    """Checks that `fit` could train this, as far as that can be said without data.

    Raises:
        UnsupportedError: as `fit`, save for a batch that cannot be shared.
    """
    mixed_precision(next(backbone.vit.parameters()).device, recipe.precision)
    for candidate in _candidates(header, scales):
        blueprint(candidate, backbone.geometry)


def finish(fitted: Fitted, dataset: Dataset, recipe: Recipe) -> tuple[TaskHeader, Evaluation]:
    """Looks at the test images, once and after all choices; returns the header with its provenance, and the result.

    Raises:
        DataError: if a picture cannot be read.
    """
    tested = evaluate(fitted.trained.model, dataset.test, fitted.header.preprocessing)
    origin = provenance(dataset, recipe, fitted.trained, tested)
    if fitted.tried:
        origin["scale_search"] = fitted.tried
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
    if kind in ADAPTERS and _SCALE not in inspect.signature(ADAPTERS[kind]).parameters:
        raise UnsupportedError(f"{kind} has no argument {_SCALE!r} to search for")
    if _SCALE in arguments:
        raise UnsupportedError(f"{kind}: {_SCALE} = {arguments[_SCALE]} is given, so there is none to search for")
    return [
        dataclasses.replace(header, adapter=Method(kind, {**arguments, _SCALE: scale}))
        for scale in dict.fromkeys(scales)
    ]
