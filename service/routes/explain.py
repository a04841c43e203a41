"""POST /v1/tasks/{task}/explain: which patches of an image merged."""

from __future__ import annotations

import io
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response
from PIL import Image
from torch import Tensor

from fpet.errors import UnsupportedError
from fpet.visualize import merged
from service.disconnect import unless_gone
from service.errors import InvalidRequestError
from service.inputs import JSON
from service.routes.classify import BODY
from service.routes.common import DeadlineDep, RuntimeDep, errors
from service.schemas import Explanation, TokenCounts

router = APIRouter(tags=["explain"])

_PNG = "image/png"
_FORMAT = Query(description="a picture of the groups in their mean colours, or their numbers")


@router.post(
    "/v1/tasks/{task}/explain",
    response_model=Explanation,
    responses={
        200: {"content": {_PNG: {"schema": {"type": "string", "format": "binary"}}}},
        **errors(400, 404, 408, 413, 415, 422, 429, 500, 503, 504),
    },
    openapi_extra=BODY,
)
async def explain(
    request: Request,
    task: str,
    runtime: RuntimeDep,
    deadline: DeadlineDep,
    format: Annotated[Literal["png", "json"], _FORMAT] = "png",
) -> Response:
    """Shows which patches of one image the task's token reduction merged."""
    runtime.require_ready()
    loaded = runtime.catalog.loaded(task)
    with runtime.batcher.admit(1):
        images = await runtime.reader.read(request, deadline)
        if len(images) > 1:
            raise InvalidRequestError(f"{len(images)} images; one is explained at a time")
        try:
            pixels, groups = await unless_gone(request, runtime.explain(loaded, images[0], deadline=deadline))
        except UnsupportedError as error:
            raise InvalidRequestError(f"the task {task}: {error}") from error
    headers = {"x-task-digest": loaded.digest}
    if format == "png":
        return Response(_png(merged(pixels, groups)), media_type=_PNG, headers=headers)
    answer = Explanation(
        task=task,
        digest=loaded.digest,
        generation=loaded.generation,
        groups=groups.tolist(),
        tokens=TokenCounts(into=loaded.tokens_in, out=loaded.tokens_out),
    )
    return Response(answer.model_dump_json(by_alias=True), media_type=JSON, headers=headers)


def _png(pixels: Tensor) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels.permute(1, 2, 0).numpy()).save(buffer, "PNG")
    return buffer.getvalue()
