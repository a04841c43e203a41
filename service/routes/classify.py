"""POST /v1/tasks/{task}/classify."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from service.deadline import Deadline
from service.disconnect import unless_gone
from service.engine import LoadedTask, Output
from service.errors import InvalidRequestError
from service.inputs import BYTES, JSON, MULTIPART
from service.routes.common import RuntimeDep, errors
from service.runtime import Inference
from service.schemas import Classification, EncodedImages, Prediction, Timings, TokenCounts, Vector

router = APIRouter(tags=["classify"])

_DEFAULT_TOP_K = 5
_BINARY = {"schema": {"type": "string", "format": "binary"}}
_FILES = {"type": "array", "items": {"type": "string", "format": "binary"}}
_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "one image as it is, several as parts of a form (whatever their names), or several in JSON",
        "content": {
            "image/*": _BINARY,
            BYTES: _BINARY,
            MULTIPART: {"schema": {"type": "object", "properties": {"image": _FILES}}},
            JSON: {"schema": EncodedImages.model_json_schema()},
        },
    }
}


class Options(BaseModel):
    """Query of a classification."""

    model_config = ConfigDict(extra="forbid")

    top_k: int | None = Field(
        default=None, ge=1, description="labels an image, at most as many as the task has; 5 or fewer if not given"
    )
    tokens: Literal["reduced", "full"] = Field(
        default="reduced", description="with the task's token reduction or without it"
    )
    outputs: list[Vector] = Field(default=[], description="vectors to answer beside the best labels; may be repeated")


@router.post(
    "/v1/tasks/{task}/classify",
    response_model=Classification,
    response_model_exclude_none=True,
    responses=errors(400, 404, 408, 413, 415, 422, 429, 500, 503, 504),
    openapi_extra=_BODY,
)
async def classify(request: Request, task: str, runtime: RuntimeDep, options: Annotated[Options, Query()]) -> Response:
    """Labels images with a task's labels. Answers carry their times (ms), token counts and digest as headers too."""
    loop = asyncio.get_running_loop()
    arrived, deadline = loop.time(), Deadline.after(runtime.settings.deadline)
    runtime.require_ready()
    loaded = runtime.catalog.loaded(task)
    top_k = _top_k(options, loaded)
    images = await runtime.reader.read(request, deadline)
    inference = await unless_gone(
        request, runtime.infer(loaded, images, reduced=options.tokens == "reduced", deadline=deadline)
    )
    tokens = TokenCounts(into=loaded.tokens_in, out=inference.tokens_out)
    timings = _timings(inference, loop.time() - arrived)
    answer = Classification(
        task=task,
        digest=loaded.digest,
        generation=loaded.generation,
        predictions=[_best(output, loaded.header.labels, top_k) for output in inference.outputs],
        tokens=tokens,
        timings_ms=timings,
        **{name: [getattr(output, name).tolist() for output in inference.outputs] for name in options.outputs},
    )
    return Response(
        answer.model_dump_json(by_alias=True, exclude_none=True),
        media_type=JSON,
        headers=_headers(loaded, tokens, timings),
    )


def _top_k(options: Options, task: LoadedTask) -> int:
    labels = len(task.header.labels)
    if options.top_k is None:
        return min(_DEFAULT_TOP_K, labels)
    if options.top_k > labels:
        raise InvalidRequestError(f"query.top_k: the task has {labels} labels")
    return options.top_k


def _best(output: Output, labels: Sequence[str], top_k: int) -> list[Prediction]:
    values, indices = output.probabilities.topk(top_k)
    return [
        Prediction(label=labels[index], index=index, probability=value)
        for value, index in zip(values.tolist(), indices.tolist(), strict=True)
    ]


def _timings(inference: Inference, total: float) -> Timings:
    seconds = {"decode": inference.decode, "queue": inference.queue, "inference": inference.inference, "total": total}
    return Timings(**{stage: round(1000 * value, 3) for stage, value in seconds.items()})


def _headers(task: LoadedTask, tokens: TokenCounts, timings: Timings) -> dict[str, str]:
    return {
        "x-queue-time": str(timings.queue),
        "x-inference-time": str(timings.inference),
        "x-total-time": str(timings.total),
        "x-tokens-in": str(tokens.into),
        "x-tokens-out": str(tokens.out),
        "x-task-digest": task.digest,
    }
