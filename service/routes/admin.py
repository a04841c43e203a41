"""PUT and DELETE /v1/tasks/{task}, and /load, /unload and /pin below it: tasks change while the service runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeVar

from fastapi import APIRouter, Depends, Header, Request, Response
from pydantic import BaseModel, Field

from fpet.header import check_name
from service.auth import check_admin
from service.deadline import Deadline
from service.entry import Entry
from service.errors import ConflictError, InvalidTaskError
from service.inputs import BYTES, read_body
from service.loaded import LoadedTask
from service.processes.whole import Whole
from service.routes.common import AuthorizationDep, RuntimeDep, WholeDep
from service.routes.described import BINARY, ETAG, Described, admin_errors, with_headers
from service.routes.tasks import describe
from service.runtime import Runtime
from service.schemas import TaskInfo

Result = TypeVar("Result")

_FILE: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "a task file",
        "content": {BYTES: BINARY},
    }
}
_ANY = "*"


class Conditions(BaseModel):
    """Headers that say on which condition a task is to be changed; several of one name are one list."""

    if_match: list[str] = Field(
        default=[], description="digests in double quotes, or *: only if the task is one of these, or any"
    )
    if_none_match: list[Literal["*"]] = Field(default=[], description="only if there is no such task")


ConditionsHeader = Annotated[Conditions, Header()]


async def authorized(runtime: RuntimeDep, whole: WholeDep, authorization: AuthorizationDep) -> None:
    """Lets nobody through without the admin key."""
    check_admin(runtime.settings.admin_key, authorization)
    await whole.require_ready()


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
    whole: WholeDep,
    conditions: ConditionsHeader,
) -> TaskInfo:
    """Puts a task into service, or another file in its place. Until it answers, the old one serves; a file that serves
    already stays what it is, with its generation and its pin."""
    try:
        check_name(task)
    except ValueError as error:
        raise InvalidTaskError(str(error)) from error
    runtime = whole.runtime
    data = await read_body(request, Deadline.after(runtime.settings.deadline), runtime.settings.max_task_bytes)

    def put() -> tuple[bool, Entry]:
        _check(conditions, runtime, task)
        _check_file(conditions, runtime, task)
        return runtime.catalog.find(task) is None, runtime.catalog.put(task, data)

    async with whole.changes.followed(task):
        new, entry = await runtime.administer(put)
    info = describe(entry, runtime.folding)
    response.status_code = 201 if new else 200
    response.headers["etag"] = f'"{info.digest}"'
    return info


@router.delete("/v1/tasks/{task}", status_code=204, responses=admin_errors(404, 409, 422, 503, 507))
async def delete_task(task: str, whole: WholeDep, conditions: ConditionsHeader) -> None:
    """Takes a task out of service and deletes its file. Requests in flight are still answered."""

    def delete(name: str) -> None:
        _check_file(conditions, whole.runtime, name)
        whole.runtime.catalog.delete(name)

    await change(whole, task, conditions, whole.runtime.catalog.entry, delete)


@router.post("/v1/tasks/{task}/load", response_model_exclude_none=True, responses=admin_errors(404, 409, 422, 503))
async def load_task(task: str, whole: WholeDep, conditions: ConditionsHeader) -> TaskInfo:
    """Puts the task's file into service, again if it is. If it fails, what served before goes on serving."""
    return describe(await put_into_service(whole, task, conditions), whole.runtime.folding)


@router.post("/v1/tasks/{task}/unload", response_model_exclude_none=True, responses=admin_errors(404, 409, 422, 503))
async def unload_task(task: str, whole: WholeDep, conditions: ConditionsHeader) -> TaskInfo:
    """Takes a task out of service; its file stays. Requests in flight are still answered."""
    return describe(await take_out_of_service(whole, task, conditions), whole.runtime.folding)


@router.post("/v1/tasks/{task}/pin", response_model_exclude_none=True, responses=admin_errors(404, 409, 422, 503))
async def pin_task(task: str, whole: WholeDep, conditions: ConditionsHeader) -> TaskInfo:
    """Folds a task into weights of its own and keeps them until it is replaced, unloaded or unpinned."""
    folding = whole.runtime.folding
    folding.require_foldable(whole.runtime.catalog.loaded(task))  # without waiting for what is being folded
    return describe(await _fold(whole, task, conditions, folding.pin), folding)


@router.delete("/v1/tasks/{task}/pin", response_model_exclude_none=True, responses=admin_errors(404, 409, 422, 503))
async def unpin_task(task: str, whole: WholeDep, conditions: ConditionsHeader) -> TaskInfo:
    """Treats a task like any other again: it stays folded if that is measured to be faster, until others need room."""
    folding = whole.runtime.folding
    return describe(await _fold(whole, task, conditions, folding.unpin), folding)


async def put_into_service(whole: Whole, name: str, conditions: Conditions) -> Entry:
    """Puts a task's file into service, if it is the one that the conditions ask for.

    Raises:
        UnknownTaskError, ConflictError
        InvalidTaskError: if it cannot serve, with the reason.
    """

    def load(name: str) -> Entry:
        entry = whole.runtime.catalog.load(name)
        if entry.state == "failed":
            raise InvalidTaskError(entry.reason or "the task cannot be loaded")
        return entry

    return await change(whole, name, conditions, whole.runtime.catalog.in_folder, load)


async def take_out_of_service(whole: Whole, name: str, conditions: Conditions) -> Entry:
    """Takes a task out of service, if it is the one that the conditions ask for.

    Raises:
        UnknownTaskError, ConflictError
    """
    catalog = whole.runtime.catalog
    return await change(whole, name, conditions, catalog.entry, catalog.unload)


async def change(
    whole: Whole,
    name: str,
    conditions: Conditions,
    find: Callable[[str], Entry],
    apply: Callable[[str], Result],
) -> Result:
    """Applies to a task what changes the catalog, if it is the one that the conditions ask for.

    find: raises UnknownTaskError if there is none.

    Raises:
        UnknownTaskError, ConflictError
    """

    def checked() -> Result:
        find(name)
        _check(conditions, whole.runtime, name)
        return apply(name)

    async with whole.changes.followed(name):
        return await whole.runtime.administer(checked)


async def _fold(whole: Whole, name: str, conditions: Conditions, apply: Callable[[LoadedTask], None]) -> Entry:
    """Pins a task, or no longer, if it is the one that the conditions ask for; the catalog may change meanwhile.

    Raises:
        UnknownTaskError: if it is gone by then.
        ConflictError: if another has taken its place, or none.
    """

    runtime = whole.runtime

    def found() -> LoadedTask:
        task = runtime.catalog.loaded(name)
        _check(conditions, runtime, name)
        return task

    def checked() -> LoadedTask:
        task = found()
        apply(task)
        return task

    found()  # nobody waits for what is being folded only to hear that there is no such task
    async with whole.changes.followed(name):
        task = await runtime.fold(checked)
    entry = runtime.catalog.entry(name)
    if entry.task is not task:
        raise ConflictError(f"the task {name!r} is {'another' if entry.task else 'out of service'} by now")
    return entry


def _check(conditions: Conditions, runtime: Runtime, name: str) -> None:
    """Raises ConflictError if the task is another one. Where it is followed by a change of the catalog, both happen in
    the one thread in which that changes."""
    entry = runtime.catalog.find(name)
    if conditions.if_none_match and entry is not None:
        raise ConflictError(f"there is a task {name!r} already")
    if not conditions.if_match:
        return
    if entry is None or entry.task is None:
        raise ConflictError(f"no task {name!r} is in service")
    wanted = {tag.strip().strip('"') for line in conditions.if_match for tag in line.split(",")}
    if wanted.isdisjoint({_ANY, entry.task.digest}):
        raise ConflictError(f"the task {name!r} is at generation {entry.task.generation}, digest {entry.task.digest}")


def _check_file(conditions: Conditions, runtime: Runtime, name: str) -> None:
    """What was put into the folder meanwhile is nobody's to overwrite who asked for something else to be there."""
    if (conditions.if_match or conditions.if_none_match) and runtime.catalog.unread(name):
        raise ConflictError(f"the folder has another file of the task {name!r}, which was not read yet")
