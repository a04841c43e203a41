"""PUT and DELETE /v1/tasks/{task}, and /load, /unload and /pin below it: tasks change while the service runs."""

from __future__ import annotations

from functools import partial
from typing import Any

from fastapi import APIRouter, Depends, Request, Response

from fpet.header import check_name
from service.deadline import Deadline
from service.errors import InvalidTaskError
from service.inputs import BYTES, read_body
from service.routes.changes import (
    ConditionsHeader,
    authorized,
    change,
    check,
    check_file,
    fold,
    put_into_service,
    take_out_of_service,
)
from service.routes.dependencies import ClusterDep
from service.routes.described import BINARY, ETAG, Described, admin_errors, with_headers
from service.routes.tasks import describe
from service.schemas import TaskInfo
from service.tasks.entry import Entry

_FILE: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "a task file",
        "content": {BYTES: BINARY},
    }
}
router = APIRouter(tags=["administration"], dependencies=[Depends(authorized)], route_class=Described)


@router.put(
    "/v1/tasks/{task}",
    response_model=TaskInfo,
    response_model_exclude_none=True,
    responses={
        200: with_headers(ETAG),
        201: {"model": TaskInfo, **with_headers(ETAG)},
        **admin_errors(400, 408, 409, 413, 422, 500, 503, 507),
    },
    openapi_extra=_FILE,
)
async def put_task(
    request: Request,
    response: Response,
    task: str,
    cluster: ClusterDep,
    conditions: ConditionsHeader,
) -> TaskInfo:
    """Puts a task into service, or another file in its place. Until it answers, the old one serves; a file that serves
    already stays what it is, with its generation and its pin."""
    try:
        check_name(task)
    except ValueError as error:
        raise InvalidTaskError(str(error)) from error
    runtime = cluster.runtime
    data = await read_body(request, Deadline.after(runtime.settings.deadline), runtime.settings.max_task_bytes)

    def put() -> tuple[bool, Entry]:
        check(conditions, runtime, task)
        new, unread = runtime.catalog.entries.find(task) is None, partial(check_file, conditions, runtime, task)
        unread()  # and once more when the task is built, which takes time
        return new, runtime.catalog.put(task, data, unread)

    async with cluster.changes.followed(task):
        new, entry = await runtime.administer(put)
    info = describe(entry, runtime.folding)
    response.status_code = 201 if new else 200
    response.headers["etag"] = f'"{info.digest}"'
    return info


@router.delete("/v1/tasks/{task}", status_code=204, responses=admin_errors(404, 409, 422, 503, 507))
async def delete_task(task: str, cluster: ClusterDep, conditions: ConditionsHeader) -> None:
    """Takes a task out of service and deletes its file. Requests in flight are still answered."""

    def delete(name: str) -> None:
        check_file(conditions, cluster.runtime, name)
        cluster.runtime.catalog.delete(name)

    await change(cluster, task, conditions, cluster.runtime.catalog.entries.require, delete)


@router.post("/v1/tasks/{task}/load", response_model_exclude_none=True, responses=admin_errors(404, 409, 422, 503, 507))
async def load_task(task: str, cluster: ClusterDep, conditions: ConditionsHeader) -> TaskInfo:
    """Puts the task's file into service, again if it is. If it fails, what served before goes on serving."""
    return describe(await put_into_service(cluster, task, conditions), cluster.runtime.folding)


@router.post("/v1/tasks/{task}/unload", response_model_exclude_none=True, responses=admin_errors(404, 409, 422, 503))
async def unload_task(task: str, cluster: ClusterDep, conditions: ConditionsHeader) -> TaskInfo:
    """Takes a task out of service; its file stays. Requests in flight are still answered."""
    return describe(await take_out_of_service(cluster, task, conditions), cluster.runtime.folding)


@router.post("/v1/tasks/{task}/pin", response_model_exclude_none=True, responses=admin_errors(404, 409, 422, 503))
async def pin_task(task: str, cluster: ClusterDep, conditions: ConditionsHeader) -> TaskInfo:
    """Folds a task into weights of its own and keeps them until it is replaced, unloaded or unpinned."""
    folding = cluster.runtime.folding
    folding.require_foldable(cluster.runtime.catalog.entries.loaded(task))  # without waiting for what is being folded
    return describe(await fold(cluster, task, conditions, folding.pin), folding)


@router.delete("/v1/tasks/{task}/pin", response_model_exclude_none=True, responses=admin_errors(404, 409, 422, 503))
async def unpin_task(task: str, cluster: ClusterDep, conditions: ConditionsHeader) -> TaskInfo:
    """Treats a task like any other again: it stays folded if that is measured to be faster, until others need room."""
    folding = cluster.runtime.folding
    return describe(await fold(cluster, task, conditions, folding.unpin), folding)
