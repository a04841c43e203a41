"""The JSON that goes in and out."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, FailFast, Field

Vector = Literal["probabilities", "logits", "embedding"]


class Schema(BaseModel):
    """Base of all: unknown fields are refused."""

    model_config = ConfigDict(extra="forbid")


class EncodedImages(Schema):
    """Images inside JSON."""

    # Of what is wrong the client is told the first.
    images: Annotated[list[str], FailFast()] = Field(
        min_length=1,
        description="one string an image: base64, or a data URI with base64",
        examples=[["iVBORw0KGgo..."]],
    )


class Prediction(Schema):
    """One label for one image."""

    label: str = Field(examples=["ankle boot"])
    index: int = Field(description="position of the label in the task's list", examples=[9])
    probability: float = Field(description="softmax over all labels", examples=[0.97])


class TokenCounts(Schema):
    """Tokens of each image at the first block and after the last; where each decides how many, the most."""

    into: int = Field(serialization_alias="in", examples=[197])
    out: int = Field(examples=[99])


class Timings(Schema):
    """Milliseconds that the request spent in each stage."""

    decode: float = Field(description="decoding and resizing the images", examples=[1.1])
    queue: float = Field(description="from decoded to the start of the first forward", examples=[0.2])
    inference: float = Field(description="from there to the end of the last forward", examples=[14.9])
    total: float = Field(description="from the arrival of the request", examples=[17.0])


class Classification(Schema):
    """The answer for the images of one request, in their order."""

    task: str = Field(examples=["fashion-mnist"])
    digest: str = Field(description="SHA-256 of the task file that answered")
    generation: int = Field(description="how often a task of this name was loaded, from 1", examples=[1])
    predictions: list[list[Prediction]] = Field(description="for each image the most probable labels, best first")
    probabilities: list[list[float]] | None = Field(
        default=None, description="for each image all labels' probabilities"
    )
    logits: list[list[float]] | None = Field(default=None, description="for each image all labels' logits")
    embedding: list[list[float]] | None = Field(default=None, description="for each image the pooled features")
    tokens: TokenCounts
    timings_ms: Timings


class Classifications(Schema):
    """The answers of several tasks for the same images, in the order in which the tasks were named."""

    results: list[Classification]


class Explanation(Schema):
    """Which patches of an image merged."""

    task: str = Field(examples=["fashion-mnist"])
    digest: str = Field(description="SHA-256 of the task file that answered")
    generation: int
    groups: list[list[int]] = Field(
        description="for each patch, by rows, the place of the token that holds it after the last block; -1: none"
    )
    tokens: TokenCounts


class TaskInfo(Schema):
    """A task and its state."""

    name: str = Field(examples=["fashion-mnist"])
    state: Literal["available", "loading", "loaded", "failed"]
    reason: str | None = Field(default=None, description="why the state is `failed`")
    generation: int | None = None
    digest: str | None = Field(default=None, description="SHA-256 of the task file")
    bytes: int | None = Field(default=None, description="size of the task file")
    labels: list[str] | None = None
    backbone: str | None = Field(default=None, description="timm architecture")
    adapter: str | None = None
    reducer: str | None = None
    tokens: TokenCounts | None = None
    path: Literal["mixed", "folded"] | None = Field(
        default=None, description="in batches with the tasks of its family, or folded into weights of its own"
    )
    folded_bytes: int | None = Field(default=None, description="bytes of these weights beyond what they share")
    pinned: bool | None = Field(default=None, description="whether it stays folded whatever is measured or asked")
    provenance: dict[str, Any] | None = Field(
        default=None, description="data, recipe, seed and accuracies as its author wrote"
    )


class TaskList(Schema):
    """All tasks."""

    tasks: list[TaskInfo]


class ShadowSavings(Schema):
    """Batches that ran again after they were answered, with token reduction and without."""

    images: int
    agreement: float = Field(description="share of images to which both ways give the same label", examples=[0.99])
    reduced_seconds: float
    full_seconds: float
    speedup: float = Field(description="full_seconds / reduced_seconds")


class TaskSavings(Schema):
    """What token reduction did for one task since the start, over requests with `tokens=reduced`."""

    task: str
    images: int
    tokens_in: int
    tokens_out: int
    forward_seconds: float
    calibrated_seconds: float = Field(
        description="the part of forward_seconds whose baseline is known, which is not until batches of that size are "
        "timed, and never where each image decides how many tokens it keeps"
    )
    baseline_seconds: float = Field(
        description="calibrated_seconds, scaled by the measured cost of doing without reduction"
    )
    speedup: float | None = Field(
        description="baseline_seconds / calibrated_seconds; below 1 where reduction costs time"
    )
    shadow: ShadowSavings | None = Field(description="the same, measured on a share of the batches; see shadow_share")


class CalibrationPoint(Schema):
    """Median forward times of a batch size, timed alternately: of the processor if one thread computes."""

    batch_size: int = Field(description="images in a forward")
    pairs: int = Field(description="forwards with and without token reduction that were timed in turn")
    reduced_ms: float = Field(description="median with token reduction")
    full_ms: float = Field(description="median without")
    speedup: float = Field(
        description="median of full over reduced time, pair by pair, where there are few with those of the sizes "
        "beside; the quotient of the two medians may be another"
    )


class TaskCalibration(Schema):
    """Where a task's baseline comes from."""

    task: str
    points: list[CalibrationPoint]


class Savings(Schema):
    """What token reduction saves, as measured."""

    tasks: list[TaskSavings]
    calibration: list[TaskCalibration]


class Status(Schema):
    """Health of the service."""

    status: str = Field(examples=["ready"])


class Error(Schema):
    """The answer to a request that failed."""

    error: str = Field(description="one sentence")
    error_type: str
