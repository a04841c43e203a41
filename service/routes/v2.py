"""The Open Inference Protocol under /v2: the server, its models, and their inferences."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from prometheus_client.registry import Collector

from service.batcher import Ticket
from service.deadline import Deadline
from service.disconnect import unless_gone
from service.errors import UnknownTaskError
from service.exchange import inferring
from service.inference import Inference
from service.inputs import BYTES, JSON, read_body
from service.loaded import LoadedTask
from service.metrics import Reading
from service.routes.classify import timing_headers, timings
from service.routes.common import (
    DeadlineHeader,
    MetricsDep,
    RuntimeDep,
    WholeDep,
    deadline_after,
    hold,
    note,
    runtime_of,
)
from service.routes.described import TIMES, Described, errors, told
from service.runtime import Runtime
from service.schemas import TokenCounts
from service.statistics import Counted
from service.v2 import describe
from service.v2.answer import answer
from service.v2.binary import HEADER_LENGTH, inflate
from service.v2.request import Question, read_request
from service.v2.schemas import (
    AllStatistics,
    InferRequest,
    InferResponse,
    Live,
    ModelConfig,
    ModelMetadata,
    ModelReady,
    Ready,
    ServerMetadata,
)
from service.v2.tensors import Limits

router = APIRouter(tags=["open inference protocol"], route_class=Described)
health = APIRouter(tags=["open inference protocol"], route_class=Described)

_MODEL = "/v2/models/{model}"
_VERSION = _MODEL + "/versions/{version}"
_BINARY = {"schema": {"type": "string", "format": "binary"}}
_BODY: dict[str, Any] = {
    # No argument of the routes: what it says is read with the body, and refused as a part of it.
    "parameters": [
        {
            "name": HEADER_LENGTH,
            "in": "header",
            "description": "bytes of the JSON, if those of tensors follow it",
            "schema": {"type": "integer", "minimum": 0},
        }
    ],
    "requestBody": {
        "required": True,
        "description": "JSON, and behind it bytes of tensors if Inference-Header-Content-Length says where it ends",
        "content": {JSON: {"schema": InferRequest.model_json_schema()}, BYTES: _BINARY},
    },
}
_INFER: dict[str, Any] = {
    "response_model": InferResponse,
    "response_model_exclude_none": True,
    "responses": {
        200: {"content": {BYTES: _BINARY}, **told(*TIMES, HEADER_LENGTH)},
        **errors(400, 404, 408, 413, 415, 422, 429, 500, 503, 504),
    },
    "openapi_extra": _BODY,
}
_GET: dict[str, Any] = {"responses": errors(404, 422, 503), "response_model_exclude_none": True}


async def _latest(request: Request, model: str) -> LoadedTask:
    runtime = runtime_of(request)
    runtime.catalog.entry(model)  # what there is not will not be there once the service is ready
    runtime.require_ready()
    return runtime.catalog.loaded(model)


ModelDep = Annotated[LoadedTask, Depends(_latest)]


async def _versioned(task: ModelDep, version: str) -> LoadedTask:
    if version != str(task.generation):
        raise UnknownTaskError(f"the model {task.header.name!r} is at version {task.generation}, not {version[:20]!r}")
    return task


VersionDep = Annotated[LoadedTask, Depends(_versioned)]


@router.get("/v2")
async def get_server() -> ServerMetadata:
    """The service, and the extensions of the protocol that it speaks."""
    return describe.server()


@health.get("/v2/health/live", responses={503: {"model": Live}})
async def live(whole: WholeDep, response: Response) -> Live:
    """The service answers; 503 while a batch is stuck, which it would not be after a new start."""
    is_live = not (await whole.health()).stuck
    response.status_code = 200 if is_live else 503
    return Live(live=is_live)


@health.get("/v2/health/ready", responses={503: {"model": Ready}})
async def ready(whole: WholeDep, response: Response) -> Ready:
    """503 until the tasks are loaded and warm, and from the moment that the service is asked to stop."""
    is_ready = (await whole.health()).status == "ready"
    response.status_code = 200 if is_ready else 503
    return Ready(ready=is_ready)


@router.get("/v2/models/stats", responses=errors(503))
def all_statistics(runtime: RuntimeDep, metrics: MetricsDep) -> AllStatistics:
    """What every model did since the service started. Beyond the first hundred tasks there are no counters."""
    return _statistics(
        metrics, *(task for task in runtime.catalog.serving() if runtime.statistics.has(task.header.name))
    )


@router.get(_MODEL, **_GET)
async def get_model(task: ModelDep) -> ModelMetadata:
    """A model's versions, input and output."""
    return describe.metadata(task)


@router.get(_VERSION, **_GET)
async def get_version(task: VersionDep) -> ModelMetadata:
    """The same, if the model is at this version."""
    return describe.metadata(task)


@router.get(_MODEL + "/ready", **_GET)
async def model_ready(task: ModelDep) -> ModelReady:
    """Whether a model answers: any status but 200 says that it does not."""
    return ModelReady(name=task.header.name, ready=True)


@router.get(_VERSION + "/ready", **_GET)
async def version_ready(task: VersionDep) -> ModelReady:
    """Whether a model answers, at this version."""
    return ModelReady(name=task.header.name, ready=True)


@router.get(_MODEL + "/config", **_GET)
async def get_config(task: ModelDep, runtime: RuntimeDep) -> ModelConfig:
    """A model as Triton would configure it; its `parameters` list the other inputs and outputs."""
    return describe.config(task, runtime.settings)


@router.get(_VERSION + "/config", **_GET)
async def get_version_config(task: VersionDep, runtime: RuntimeDep) -> ModelConfig:
    """The same, if the model is at this version."""
    return describe.config(task, runtime.settings)


@router.get(_MODEL + "/stats", **_GET)
def model_statistics(task: ModelDep, metrics: MetricsDep) -> AllStatistics:
    """What a model did since the service started, over all of its versions."""
    return _statistics(metrics, task)


@router.get(_VERSION + "/stats", **_GET)
def version_statistics(task: VersionDep, metrics: MetricsDep) -> AllStatistics:
    """The same, if the model is at this version."""
    return _statistics(metrics, task)


@router.post(_MODEL + "/infer", **_INFER)
@inferring
async def infer(request: Request, task: ModelDep, x_deadline_ms: DeadlineHeader = None) -> Response:
    """Labels images: encoded, as pixels, or normalised by the client."""
    return await _infer(request, task, x_deadline_ms)


@router.post(_VERSION + "/infer", **_INFER)
@inferring
async def infer_version(request: Request, task: VersionDep, x_deadline_ms: DeadlineHeader = None) -> Response:
    """The same, if the model is at this version."""
    return await _infer(request, task, x_deadline_ms)


def _statistics(metrics: Collector, *tasks: LoadedTask) -> AllStatistics:
    counted = Counted(Reading(metrics))
    return AllStatistics(model_stats=[describe.statistics(task, counted) for task in tasks])


async def _infer(request: Request, task: LoadedTask, milliseconds: float | None) -> Response:
    loop = asyncio.get_running_loop()
    arrived = loop.time()
    runtime = runtime_of(request)
    deadline = deadline_after(milliseconds, runtime)
    with runtime.inferences.admitted([task]) as ticket:
        body = await read_body(request, deadline, runtime.settings.max_body)
        question, inference = await unless_gone(request, _ask(request, body, ticket, task, runtime, deadline=deadline))
    note(request, task, inference)
    answered = answer(task, question, inference.outputs)
    tokens = TokenCounts(into=task.tokens_in, out=inference.tokens_out)
    headers = timing_headers(task.digest, tokens, timings(inference, loop.time() - arrived))
    if answered.header_length is None:
        return Response(answered.body, media_type=JSON, headers=headers)
    return Response(answered.body, media_type=BYTES, headers=headers | {HEADER_LENGTH: str(answered.header_length)})


async def _inflated(request: Request, body: bytes, runtime: Runtime) -> bytes:
    """The body as its Content-Encoding says, of which what it grows by takes room too."""
    encoding = request.headers.get("content-encoding")
    if encoding is None:
        return body
    inflated = await asyncio.get_running_loop().run_in_executor(
        runtime.reader.pool, inflate, body, encoding, runtime.settings.max_body
    )
    hold(request, max(0, len(inflated) - len(body)))
    return inflated


async def _ask(
    request: Request, body: bytes, ticket: Ticket, task: LoadedTask, runtime: Runtime, *, deadline: Deadline
) -> tuple[Question, Inference]:
    limits = Limits(task.header.preprocessing.size, runtime.settings.max_images)
    async with deadline.limit():  # parsing waits for a thread, as decoding does
        body = await _inflated(request, body, runtime)
        question = await asyncio.get_running_loop().run_in_executor(
            runtime.reader.pool, read_request, body, request.headers.get(HEADER_LENGTH), limits
        )
    if question.timeout is not None and question.timeout < deadline.seconds:
        deadline = Deadline(deadline.at - deadline.seconds + question.timeout, question.timeout, asked_for=True)
    return question, await _run(ticket, task, question, runtime, deadline)


async def _run(ticket: Ticket, task: LoadedTask, question: Question, runtime: Runtime, deadline: Deadline) -> Inference:
    if isinstance(question.images, list):
        (inference,) = await runtime.inferences.images(
            ticket, [task], question.images, reduced=question.reduced, deadline=deadline
        )
        return inference
    return await runtime.inferences.pixels(ticket, task, question.images, reduced=question.reduced, deadline=deadline)
