"""POST /v2/models/{model}/infer: images to labels by the Open Inference Protocol."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter, Request, Response

from service.deadline import Deadline
from service.http.disconnect import unless_gone
from service.http.exchange import Exchange
from service.inference import Inference
from service.inputs import BYTES, JSON, read_body
from service.model.loaded import LoadedTask
from service.queue_slots import Reservation
from service.routes.dependencies import DeadlineHeader, application_of, deadline_after, runtime_of
from service.routes.described import BINARY, TIMES, DescribedInferenceRoute, content_of, errors, with_headers
from service.routes.reporting import note, timing_headers, timings
from service.routes.v2 import AT_VERSION, MODEL, VERSION, ModelDep
from service.routes.writing import written
from service.runtime import Runtime
from service.schemas import TokenCounts
from service.v2.answer import answer
from service.v2.binary import HEADER_LENGTH, inflate
from service.v2.request import Question, read_request
from service.v2.schemas import InferRequest, InferResponse
from service.v2.tensors import Limits

router = APIRouter(tags=["open inference protocol"], route_class=DescribedInferenceRoute)

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
        "content": {JSON: content_of(InferRequest), BYTES: BINARY},
    },
}
_INFER: dict[str, Any] = {
    "response_model": InferResponse,
    "response_model_exclude_none": True,
    "responses": {
        200: {"content": {BYTES: BINARY}, **with_headers(*TIMES, HEADER_LENGTH)},
        **errors(400, 404, 408, 413, 415, 422, 429, 500, 503, 504),
    },
    "openapi_extra": _BODY,
}


@router.post(VERSION + "/infer", **AT_VERSION, **_INFER)
@router.post(MODEL + "/infer", **_INFER)
async def infer(request: Request, task: ModelDep, x_deadline_ms: DeadlineHeader = None) -> Response:
    """Labels images: encoded, as pixels, or normalised by the client."""
    loop = asyncio.get_running_loop()
    arrived = loop.time()
    runtime = runtime_of(request)
    deadline = deadline_after(x_deadline_ms, runtime)
    with runtime.inferences.admitted([task]) as reservation:
        # Parsing waits for a thread, as decoding does. The question has copies of the tensors: nothing holds the body
        # beyond its parsing.
        question = await unless_gone(
            request,
            deadline.within(
                _parse(request, await read_body(request, deadline, runtime.settings.max_body), task, runtime)
            ),
        )
        deadline = _sooner(deadline, question.timeout)
        inference = await unless_gone(request, _run(reservation, task, question, runtime, deadline))
    note(request, task, inference)
    values = len(inference.outputs) * len(task.header.labels) * len(question.outputs)
    name, outputs = task.header.name, inference.outputs
    answered = await written(request, deadline, name, values, lambda: answer(task, question, outputs))
    tokens = TokenCounts(into=task.tokens_in, out=inference.tokens_out)
    headers = timing_headers(task.digest, tokens, timings(inference, loop.time() - arrived))
    if answered.header_length is None:
        return Response(answered.body, media_type=JSON, headers=headers)
    return Response(answered.body, media_type=BYTES, headers=headers | {HEADER_LENGTH: str(answered.header_length)})


async def _inflated(request: Request, body: bytes, task: LoadedTask, runtime: Runtime) -> bytes:
    """The body as its Content-Encoding says, of which what it grows by takes room too."""
    encoding = request.headers.get("content-encoding")
    if encoding is None:
        return body
    inflated = await runtime.texts.call(task.header.name, inflate, body, encoding, runtime.settings.max_body)
    application_of(request).body_budget.take(Exchange.of(request), max(0, len(inflated) - len(body)))
    return inflated


async def _parse(request: Request, body: bytes, task: LoadedTask, runtime: Runtime) -> Question:
    limits = Limits(task.header.preprocessing.size, runtime.settings.max_images)
    body = await _inflated(request, body, task, runtime)
    return await runtime.texts.call(task.header.name, read_request, body, request.headers.get(HEADER_LENGTH), limits)


def _sooner(deadline: Deadline, timeout: float | None) -> Deadline:
    """The deadline, or what the request's own time-out, in seconds from its arrival, makes of it if that is less."""
    if timeout is None or timeout >= deadline.seconds:
        return deadline
    return Deadline(deadline.at - deadline.seconds + timeout, timeout, asked_for=True)


async def _run(
    reservation: Reservation, task: LoadedTask, question: Question, runtime: Runtime, deadline: Deadline
) -> Inference:
    if isinstance(question.images, list):
        (inference,) = await runtime.inferences.images(
            reservation, [task], question.images, reduced=question.reduced, deadline=deadline
        )
        return inference
    return await runtime.inferences.pixels(
        reservation, task, question.images, reduced=question.reduced, deadline=deadline
    )
