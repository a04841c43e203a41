"""The model repository extension of the Open Inference Protocol: which tasks there are, and loading and unloading."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Depends, Request

from service.deadline import Deadline
from service.errors import NotReadyError
from service.inputs import JSON, Model, parse, read_body
from service.routes.changes import ConditionsHeader, authorized, put_into_service, take_out_of_service
from service.routes.dependencies import ClusterDep, RuntimeDep
from service.routes.described import Described, admin_errors, content_of, errors
from service.runtime import Runtime
from service.v2.describe import index_entry
from service.v2.schemas import ChangeRequest, IndexEntry, IndexRequest

router = APIRouter(tags=["open inference protocol"], route_class=Described)

# Bytes of JSON that is parsed where all requests are answered: it takes no longer than they notice.
_MAX_BODY = 2**16


def _body(schema: type[Model]) -> dict[str, Any]:
    return {"requestBody": {"required": False, "content": {JSON: content_of(schema)}}}


_CHANGE: dict[str, Any] = {
    "dependencies": [Depends(authorized)],
    "response_model_exclude_none": True,
    "openapi_extra": _body(ChangeRequest),
}
_REFUSALS = (404, 408, 409, 413, 422, 503)


@router.post(
    "/v2/repository/index",
    response_model_exclude_none=True,
    responses=errors(408, 413, 422),
    openapi_extra=_body(IndexRequest),
)
async def index(request: Request, runtime: RuntimeDep) -> list[IndexEntry]:
    """All tasks in the folder, by name, or those that answer."""
    asked = await _read(request, runtime, IndexRequest)
    refusal = _refusal(runtime)
    entries = [index_entry(entry, refusal) for entry in runtime.catalog.entries.all()]
    return [entry for entry in entries if entry.state == "READY" or not asked.ready]


@router.post("/v2/repository/models/{model}/load", responses=admin_errors(*_REFUSALS, 507), **_CHANGE)
async def load(request: Request, model: str, cluster: ClusterDep, conditions: ConditionsHeader) -> IndexEntry:
    """Puts a task's file into service, again if it is. If it fails, what served before goes on serving."""
    await _read(request, cluster.runtime, ChangeRequest)
    return index_entry(await put_into_service(cluster, model, conditions))


@router.post("/v2/repository/models/{model}/unload", responses=admin_errors(*_REFUSALS), **_CHANGE)
async def unload(request: Request, model: str, cluster: ClusterDep, conditions: ConditionsHeader) -> IndexEntry:
    """Takes a task out of service; its file stays. Requests in flight are still answered."""
    await _read(request, cluster.runtime, ChangeRequest)
    return index_entry(await take_out_of_service(cluster, model, conditions))


def _refusal(runtime: Runtime) -> str | None:
    """Why the service answers nobody, if it does not."""
    try:
        runtime.require_ready()
    except NotReadyError as error:
        return error.message
    return None


async def _read(request: Request, runtime: Runtime, schema: type[Model]) -> Model:
    """The body, which may be missing."""
    body = await read_body(request, Deadline.after(runtime.settings.deadline), _MAX_BODY, may_be_empty=True)
    return parse(schema, body or b"{}")
