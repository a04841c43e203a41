"""What the service answers."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from fpet import predictions
from fpet.predictions import Prediction, TokenCounts

Record = TypeVar("Record")
Document = Mapping[str, Any]


@dataclass(frozen=True)
class Timings:
    """Milliseconds that a request spent in the service."""

    decode: float
    queue: float
    inference: float
    total: float


@dataclass(frozen=True)
class Classification(predictions.Classification):
    """What a task of the service says of an image.

    digest, generation: of the task that answered, SHA-256 of its file and how often a task of its name was loaded, from
    1. timings: of the request, in which there were other images too.
    probabilities, logits: of all labels; embedding: pooled features; None unless asked for in `outputs`.
    """

    task: str
    digest: str
    generation: int
    timings: Timings
    probabilities: tuple[float, ...] | None = None
    logits: tuple[float, ...] | None = None
    embedding: tuple[float, ...] | None = None


@dataclass(frozen=True)
class Explanation:
    """groups: for each patch, by rows, the place of the token that holds it after the last block; -1: none."""

    task: str
    digest: str
    generation: int
    groups: tuple[tuple[int, ...], ...]
    tokens: TokenCounts


@dataclass(frozen=True)
class TaskInfo:
    """A task and its state; `reason` says why it failed, and the rest is None unless it is loaded.

    bytes: of its file; path: in batches with its family, or folded into weights of its own, which take folded_bytes.
    """

    name: str
    state: Literal["available", "loading", "loaded", "failed"]
    reason: str | None = None
    generation: int | None = None
    digest: str | None = None
    bytes: int | None = None
    labels: tuple[str, ...] | None = None
    backbone: str | None = None
    adapter: str | None = None
    reducer: str | None = None
    tokens: TokenCounts | None = None
    path: Literal["mixed", "folded"] | None = None
    folded_bytes: int | None = None
    pinned: bool | None = None
    provenance: Document | None = None


@dataclass(frozen=True)
class ShadowSavings:
    """Batches that ran again after they were answered; agreement: share of images labelled alike, 0 to 1."""

    images: int
    agreement: float
    reduced_seconds: float
    full_seconds: float
    speedup: float


@dataclass(frozen=True)
class TaskSavings:
    """What token reduction did for a task since the start.

    calibrated_seconds: the part of forward_seconds whose baseline_seconds are known; speedup: baseline_seconds /
    calibrated_seconds, None as long as there are none.
    """

    task: str
    images: int
    tokens_in: int
    tokens_out: int
    forward_seconds: float
    calibrated_seconds: float
    baseline_seconds: float
    speedup: float | None
    shadow: ShadowSavings | None


@dataclass(frozen=True)
class CalibrationPoint:
    """Median milliseconds of a forward of that many images at start-up, timed in `pairs`; speedup: what counts."""

    batch_size: int
    pairs: int
    reduced_ms: float
    full_ms: float
    speedup: float


@dataclass(frozen=True)
class TaskCalibration:
    """Where a task's baseline comes from."""

    task: str
    points: tuple[CalibrationPoint, ...]


@dataclass(frozen=True)
class Savings:
    """What token reduction saves, as measured."""

    tasks: tuple[TaskSavings, ...]
    calibration: tuple[TaskCalibration, ...]


def classifications(document: Document, images: int) -> list[Classification]:
    """The answer of one task for so many images, image by image.

    Raises:
        KeyError, TypeError, ValueError: if it is none.
    """
    vectors = [name for name in ("probabilities", "logits", "embedding") if document.get(name) is not None]
    common: dict[str, Any] = {
        "task": document["task"],
        "digest": document["digest"],
        "generation": document["generation"],
        "tokens": _tokens(document),
        "timings": _record(Timings, document["timings_ms"]),
    }
    if len(document["predictions"]) != images:
        raise ValueError(f"{images} images were sent, {len(document['predictions'])} are answered")
    each: list[dict[str, Any]] = [{name: tuple(document[name][i]) for name in vectors} for i in range(images)]
    return [
        Classification(predictions=tuple(_record(Prediction, one) for one in best), **common, **own)
        for best, own in zip(document["predictions"], each, strict=True)
    ]


def explanation(document: Document) -> Explanation:
    """Which patches merged. Raises as `classifications` does."""
    groups = tuple(tuple(row) for row in document["groups"])
    return _record(Explanation, {**document, "groups": groups, "tokens": _tokens(document)})


def task_info(document: Document) -> TaskInfo:
    """A task. Raises as `classifications` does."""
    changes: dict[str, Any] = {}
    if "labels" in document:
        changes["labels"] = tuple(document["labels"])
    if "tokens" in document:
        changes["tokens"] = _tokens(document)
    return _record(TaskInfo, {**document, **changes})


def savings(document: Document) -> Savings:
    """What was saved. Raises as `classifications` does."""
    return Savings(
        tuple(_task_savings(task) for task in document["tasks"]),
        tuple(
            TaskCalibration(one["task"], tuple(_record(CalibrationPoint, point) for point in one["points"]))
            for one in document["calibration"]
        ),
    )


def _task_savings(document: Document) -> TaskSavings:
    shadow = document["shadow"]
    return _record(TaskSavings, {**document, "shadow": None if shadow is None else _record(ShadowSavings, shadow)})


def _tokens(document: Document) -> TokenCounts:
    return TokenCounts(document["tokens"]["in"], document["tokens"]["out"])


def _record(kind: type[Record], document: Document) -> Record:
    """The fields that this version knows: a later service may say more."""
    known = {field.name for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: value for name, value in document.items() if name in known})
