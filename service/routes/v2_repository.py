"""The model repository extension of the Open Inference Protocol: which tasks there are, and loading and unloading."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import APIRouter, Depends, Request

from service.catalog import Entry
from service.deadline import Deadline
from service.errors import InvalidTaskError
from service.inputs import JSON, Model, parse
from service.routes.admin import authorized
from service.routes.common import RuntimeDep, errors
from service.runtime import Runtime
from service.v2.describe import index_entry
from service.v2.schemas import ChangeRequest, IndexEntry, IndexRequest

router = APIRouter(tags=["open inference protocol"])


def _body(schema: type[Model]) -> dict[str, Any]:
    return {"requestBody": {"required": False, "content": {JSON: {"schema": schema.model_json_schema()}}}}


_CHANGE: dict[str, Any] = {
    "dependencies": [Depends(authorized)],
    "response_model_exclude_none": True,
    "responses": errors(401, 403, 404, 408, 413, 422, 503),
    "openapi_extra": _body(ChangeRequest),
}


@router.post(
    "/v2/repository/index",
    response_model_exclude_none=True,
    responses=errors(408, 413, 422),
    openapi_extra=_body(IndexRequest),
)
async def index(request: Request, runtime: RuntimeDep) -> list[IndexEntry]:
    """All tasks in the folder, by name, or those that answer."""
    asked = await _read(request, runtime, IndexRequest)
    entries = [index_entry(entry) for entry in runtime.catalog.entries()]
    return [entry for entry in entries if entry.state == "READY" or not asked.ready]


@router.post("/v2/repository/models/{model}/load", **_CHANGE)
async def load(request: Request, model: str, runtime: RuntimeDep) -> IndexEntry:
    """Puts a task's file into service, again if it is. If it fails, what served before goes on serving."""
    entry = await _change(request, runtime, lambda: runtime.catalog.load(model))
    if entry.state == "failed":
        raise InvalidTaskError(entry.reason or "the task cannot be loaded")
    return index_entry(entry)


@router.post("/v2/repository/models/{model}/unload", **_CHANGE)
async def unload(request: Request, model: str, runtime: RuntimeDep) -> IndexEntry:
    """Takes a task out of service; its file stays. Requests in flight are still answered."""
    return index_entry(await _change(request, runtime, lambda: runtime.catalog.unload(model)))


async def _change(request: Request, runtime: Runtime, change: Callable[[], Entry]) -> Entry:
    await _read(request, runtime, ChangeRequest)
    return await runtime.administer(change)


async def _read(request: Request, runtime: Runtime, schema: type[Model]) -> Model:
    """The body, which may be missing."""
    deadline = Deadline.after(runtime.settings.deadline)
    body = await runtime.reader.read_whole(request, deadline, may_be_empty=True)
    return parse(schema, body or b"{}")
