"""GET /v1/tasks and GET /v1/tasks/{task}."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from service.folding import Folding
from service.http.disconnect import unless_gone
from service.inputs import JSON
from service.routes.dependencies import RuntimeDep, deadline_after
from service.routes.described import ETAG, Described, errors, with_headers
from service.runtime import Runtime
from service.schemas import TaskInfo, TaskList, TokenCounts
from service.tasks.entry import Entry

_LISTS = None  # no task's: they take turns with what is read and written of each task

router = APIRouter(tags=["tasks"], route_class=Described)


@router.get("/v1/tasks", response_model=TaskList, response_model_exclude_none=True, responses=errors(504))
async def list_tasks(request: Request, runtime: RuntimeDep) -> Response:
    """All tasks, by name."""
    listed = deadline_after(None, runtime).within(runtime.texts.call(_LISTS, _listed, runtime))
    return Response(await unless_gone(request, listed), media_type=JSON)


@router.get(
    "/v1/tasks/{task}", response_model_exclude_none=True, responses={200: with_headers(ETAG), **errors(404, 422)}
)
async def get_task(task: str, runtime: RuntimeDep, response: Response) -> TaskInfo:
    """One task; its digest is the ETag."""
    info = describe(runtime.catalog.entries.require(task), runtime.folding)
    if info.digest is not None:
        response.headers["etag"] = f'"{info.digest}"'
    return info


def _listed(runtime: Runtime) -> str:
    tasks = TaskList(tasks=[describe(entry, runtime.folding) for entry in runtime.catalog.entries.all()])
    return tasks.model_dump_json(by_alias=True, exclude_none=True)


def describe(entry: Entry, folding: Folding) -> TaskInfo:
    """The description of a task."""
    if entry.task is None:
        return TaskInfo(name=entry.name, state=entry.state, reason=entry.reason)
    task, header = entry.task, entry.task.header
    instance, pinned = folding.state(task)
    return TaskInfo(
        name=entry.name,
        state=entry.state,
        reason=entry.reason,
        generation=task.generation,
        digest=task.digest,
        bytes=task.size,
        labels=list(header.labels),
        backbone=header.backbone.architecture,
        adapter=header.adapter.kind,
        reducer=header.reducer.kind,
        tokens=TokenCounts(into=task.tokens_in, out=task.tokens_out),
        path="folded" if instance else "mixed",
        folded_bytes=instance.bytes if instance else None,
        pinned=pinned,
        provenance=header.provenance,
    )
