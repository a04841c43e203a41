"""POST /v1/tasks/{task}/explain: which patches of an image merged."""

from __future__ import annotations

import io
from functools import partial
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response
from PIL import Image
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from fpet.backbone import Backbone
from fpet.errors import UnsupportedError
from fpet.groups import tokens_left
from fpet.visualize import in_patches, merged
from service.errors import InvalidRequestError
from service.http.disconnect import unless_gone
from service.inputs import JSON
from service.model.loaded import LoadedTask
from service.routes.dependencies import DeadlineHeader, deadline_after, require_single, runtime_of
from service.routes.described import BINARY, DIGEST, IMAGES_BODY, DescribedInferenceRoute, errors, with_headers
from service.schemas import Explanation, TokenCounts

router = APIRouter(tags=["explain"], route_class=DescribedInferenceRoute)

_PNG = "image/png"


class Options(BaseModel):
    """Query of an explanation."""

    model_config = ConfigDict(extra="forbid")

    format: Literal["png", "json"] = Field(
        default="png", description="a picture of the groups in their mean colours, or their numbers"
    )


@router.post(
    "/v1/tasks/{task}/explain",
    response_model=Explanation,
    responses={
        200: {"content": {_PNG: BINARY}, **with_headers(DIGEST)},
        **errors(400, 404, 408, 413, 415, 422, 429, 500, 503, 504),
    },
    openapi_extra=IMAGES_BODY,
)
async def explain(
    request: Request, task: str, options: Annotated[Options, Query()], x_deadline_ms: DeadlineHeader = None
) -> Response:
    """Shows which patches of one image the task's token reduction merged."""
    runtime = runtime_of(request)
    deadline = deadline_after(x_deadline_ms, runtime)
    require_single(request)
    runtime.require_ready()
    loaded = runtime.catalog.entries.loaded(task)
    picture, numbers = partial(_picture, runtime.engine.backbone), partial(_numbers, loaded)
    media_type, show = (_PNG, picture) if options.format == "png" else (JSON, numbers)
    with runtime.explanations.admitted():
        images = await runtime.reader.read(request, deadline, task)
        if len(images) > 1:
            raise InvalidRequestError(f"{len(images)} images; one is explained at a time")
        try:
            explained = runtime.explanations.explain(loaded, images[0], show, deadline=deadline)
            content = await unless_gone(request, explained)
        except UnsupportedError as error:
            raise InvalidRequestError(f"the task {task}: {error}") from error
    return Response(content, media_type=media_type, headers={DIGEST: loaded.digest})


def _picture(backbone: Backbone, pixels: Tensor, groups: Tensor) -> bytes:
    buffer = io.BytesIO()
    panel = merged(in_patches(pixels, backbone), groups)
    Image.fromarray(panel.permute(1, 2, 0).numpy()).save(buffer, "PNG")
    return buffer.getvalue()


def _numbers(task: LoadedTask, _: Tensor, groups: Tensor) -> bytes:
    explanation = Explanation(
        task=task.header.name,
        digest=task.digest,
        generation=task.generation,
        groups=groups.tolist(),
        tokens=TokenCounts(into=task.tokens_in, out=tokens_left(groups, task.tokens_in)),
    )
    return explanation.model_dump_json(by_alias=True).encode()
