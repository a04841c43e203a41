"""POST /v1/tasks/{task}/classify, and /v1/classify for several tasks at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from service.errors import InvalidRequestError, TooLargeError
from service.http.disconnect import unless_gone
from service.http.exchange import split_names
from service.inference import Inference
from service.inputs import JSON
from service.model.loaded import LoadedTask
from service.model.work import Output, top_indices
from service.routes.dependencies import DeadlineHeader, deadline_after, require_single, runtime_of
from service.routes.described import IMAGES_BODY, TIMES, DescribedInferenceRoute, errors, with_headers
from service.routes.reporting import note, timing_headers, timings
from service.routes.writing import written
from service.runtime import Runtime
from service.schemas import Classification, Classifications, Prediction, TokenCounts, Vector

router = APIRouter(tags=["classify"], route_class=DescribedInferenceRoute)

_DEFAULT_TOP_K = 5
_ERRORS = errors(400, 404, 408, 413, 415, 422, 429, 500, 503, 504)
_ANSWERS: dict[str, Any] = {"response_model_exclude_none": True, "openapi_extra": IMAGES_BODY}


class Options(BaseModel):
    """Query of a classification."""

    model_config = ConfigDict(extra="forbid")

    top_k: int | None = Field(
        default=None, ge=1, description="labels per image, at most as many as the task has; 5 or fewer if not given"
    )
    tokens: Literal["reduced", "full"] = Field(
        default="reduced", description="with the task's token reduction or without it"
    )
    outputs: Annotated[list[Vector], BeforeValidator(split_names)] = Field(
        default=[], description="vectors to answer beside the best labels, separated by commas or repeated"
    )


class ManyOptions(Options):
    """Query of a classification by several tasks."""

    tasks: list[str] = Field(min_length=1, description="names of the tasks, separated by commas or repeated")

    @field_validator("tasks")
    @classmethod
    def _split(cls, values: list[str]) -> list[str]:
        names = split_names(values)
        if not names:
            raise ValueError("no task is named")
        if len(set(names)) < len(names):
            raise ValueError("a task is named twice")
        return names


@router.post(
    "/v1/tasks/{task}/classify",
    response_model=Classification,
    responses={200: with_headers(*TIMES), **_ERRORS},
    **_ANSWERS,
)
async def classify(
    request: Request, task: str, options: Annotated[Options, Query()], x_deadline_ms: DeadlineHeader = None
) -> Response:
    """Labels images with a task's labels. Answers carry their times (ms), token counts and digest as headers too."""
    (answer,), text = await _classify(request, [task], options, x_deadline_ms, lambda answers: answers[0])
    headers = timing_headers(answer.digest, answer.tokens, answer.timings_ms)
    return Response(text, media_type=JSON, headers=headers)


@router.post(
    "/v1/classify",
    response_model=Classifications,
    responses=_ERRORS,
    **_ANSWERS,
)
async def classify_by_many(
    request: Request, options: Annotated[ManyOptions, Query()], x_deadline_ms: DeadlineHeader = None
) -> Response:
    """Labels images with the labels of several tasks. Each image is decoded once."""
    _, text = await _classify(
        request, options.tasks, options, x_deadline_ms, lambda answers: Classifications(results=answers)
    )
    return Response(text, media_type=JSON)


async def _classify(
    request: Request,
    names: Sequence[str],
    options: Options,
    milliseconds: float | None,
    document: Callable[[list[Classification]], BaseModel],
) -> tuple[list[Classification], str]:
    """The answer of each task, and as JSON the document that is made of them."""
    loop = asyncio.get_running_loop()
    arrived = loop.time()
    runtime = runtime_of(request)
    deadline = deadline_after(milliseconds, runtime)
    require_single(request)
    runtime.require_ready()
    tasks, top_k = _asked(runtime, names, options)
    with runtime.inferences.admitted(tasks) as reservation:
        images = await runtime.reader.read(request, deadline, names[0])
        _require_few(len(images), len(tasks), runtime.settings.max_images)
        reduced = options.tokens == "reduced"
        inferences = await unless_gone(
            request, runtime.inferences.images(reservation, tasks, images, reduced=reduced, deadline=deadline)
        )
    for task, inference in zip(tasks, inferences, strict=True):
        note(request, task, inference)
    total = loop.time() - arrived

    def write() -> tuple[list[Classification], str]:
        answers = [
            _answer(task, inference, k, options.outputs, total)
            for task, inference, k in zip(tasks, inferences, top_k, strict=True)
        ]
        return answers, document(answers).model_dump_json(by_alias=True, exclude_none=True)

    of_an_image = sum(k + len(options.outputs) * len(task.header.labels) for k, task in zip(top_k, tasks, strict=True))
    return await written(request, deadline, names[0], len(images) * of_an_image, write)


def _asked(runtime: Runtime, names: Sequence[str], options: Options) -> tuple[list[LoadedTask], list[int]]:
    """The tasks, and how many labels of each."""
    tasks = [runtime.catalog.entries.loaded(name) for name in names]
    top_k = [_top_k(options, task) for task in tasks]
    if len(tasks) > runtime.settings.max_images:  # not to be cured by other images, or fewer
        raise InvalidRequestError(f"query.tasks: {len(tasks)} tasks; the limit is {runtime.settings.max_images}")
    return tasks, top_k


def _require_few(images: int, tasks: int, limit: int) -> None:
    if images * tasks > limit:
        raise TooLargeError(f"{images} images for {tasks} tasks; the limit for their product is {limit}")


def _answer(
    task: LoadedTask, inference: Inference, top_k: int, vectors: Sequence[Vector], total: float
) -> Classification:
    return Classification(
        task=task.header.name,
        digest=task.digest,
        generation=task.generation,
        predictions=[_best(output, task.header.labels, top_k) for output in inference.outputs],
        tokens=TokenCounts(into=task.tokens_in, out=inference.tokens_out),
        timings_ms=timings(inference, total),
        **{name: [getattr(output, name).tolist() for output in inference.outputs] for name in vectors},
    )


def _top_k(options: Options, task: LoadedTask) -> int:
    labels = len(task.header.labels)
    if options.top_k is None:
        return min(_DEFAULT_TOP_K, labels)
    if options.top_k > labels:
        raise InvalidRequestError(f"query.top_k: the task {task.header.name} has {labels} labels")
    return options.top_k


def _best(output: Output, labels: Sequence[str], top_k: int) -> list[Prediction]:
    probabilities = output.probabilities
    return [
        Prediction(label=labels[index], index=index, probability=float(probabilities[index]))
        for index in top_indices(probabilities, top_k)
    ]
