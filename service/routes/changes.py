"""Changes of tasks, for both protocols: authorization, conditions, and replication to the other processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal, TypeVar

from fastapi import Header
from pydantic import BaseModel, Field

from service.auth import check_admin
from service.errors import ConflictError, InvalidTaskError
from service.model.loaded import LoadedTask
from service.processes.cluster import Cluster
from service.routes.dependencies import AuthorizationDep, ClusterDep, RuntimeDep
from service.runtime import Runtime
from service.tasks.entry import Entry

Result = TypeVar("Result")

_ANY = "*"


class Conditions(BaseModel):
    """Headers that say on which condition a task is to be changed; several of one name are one list."""

    if_match: list[str] = Field(
        default=[], description="digests in double quotes, or *: only if the task is one of these, or any"
    )
    if_none_match: list[Literal["*"]] = Field(default=[], description="only if there is no such task")


ConditionsHeader = Annotated[Conditions, Header()]


async def authorized(runtime: RuntimeDep, cluster: ClusterDep, authorization: AuthorizationDep) -> None:
    """Refuses requests without the admin key, and all requests until every process is ready."""
    check_admin(runtime.settings.admin_key, authorization)
    await cluster.require_ready()


async def put_into_service(cluster: Cluster, name: str, conditions: Conditions) -> Entry:
    """Puts a task's file into service, if it is the one that the conditions ask for.

    Raises:
        UnknownTaskError: if there is no such task and no file of one.
        ConflictError: if it does not meet the conditions.
        InvalidTaskError: if it cannot serve, with the reason.
        NotReadyError: if one of the processes is not ready or does not follow.
        StorageError: if the folder is gone or cannot be listed.
    """

    def load(name: str) -> Entry:
        entry = cluster.runtime.catalog.load(name)
        if entry.state == "failed":
            raise InvalidTaskError(entry.reason or "the task cannot be loaded")
        return entry

    return await change(cluster, name, conditions, cluster.runtime.catalog.in_folder, load)


async def take_out_of_service(cluster: Cluster, name: str, conditions: Conditions) -> Entry:
    """Takes a task out of service, if it is the one that the conditions ask for.

    Raises:
        UnknownTaskError: if there is no such task.
        ConflictError: if it does not meet the conditions.
        NotReadyError: if one of the processes is not ready or does not follow.
    """
    catalog = cluster.runtime.catalog
    return await change(cluster, name, conditions, catalog.entries.require, catalog.unload)


async def change(
    cluster: Cluster,
    name: str,
    conditions: Conditions,
    find: Callable[[str], Entry],
    apply: Callable[[str], Result],
) -> Result:
    """Applies a change of the catalog to a task, if it is the one that the conditions ask for; returns its result.

    find: raises UnknownTaskError if there is no such task; apply: makes the change. Both are called with the name, in
    the thread that changes the catalog.

    Raises:
        UnknownTaskError: if there is no such task.
        ConflictError: if it does not meet the conditions.
        NotReadyError: if one of the processes is not ready or does not follow.
        ServiceError: whatever `apply` raises.
    """

    def checked() -> Result:
        find(name)
        check(conditions, cluster.runtime, name)
        return apply(name)

    async with cluster.changes.followed(name):
        return await cluster.runtime.administer(checked)


async def fold(cluster: Cluster, name: str, conditions: Conditions, apply: Callable[[LoadedTask], None]) -> Entry:
    """Pins or unpins a task, as `apply` does, if it is the one that the conditions ask for.

    The catalog may change meanwhile.

    Raises:
        UnknownTaskError: if there is no such task, or it is gone afterwards.
        ConflictError: if it does not meet the conditions, or is another or out of service afterwards.
        NotReadyError: if it is not loaded, or one of the processes is not ready or does not follow.
        ServiceError: whatever `apply` raises.
    """

    runtime = cluster.runtime

    def found() -> LoadedTask:
        task = runtime.catalog.entries.loaded(name)
        check(conditions, runtime, name)
        return task

    def checked() -> LoadedTask:
        task = found()
        apply(task)
        return task

    found()  # nobody waits for what is being folded only to hear that there is no such task
    async with cluster.changes.followed(name):
        task = await runtime.fold(checked)
    entry = runtime.catalog.entries.require(name)
    if entry.task is not task:
        raise ConflictError(f"the task {name!r} is {'another' if entry.task else 'out of service'} by now")
    return entry


def check(conditions: Conditions, runtime: Runtime, name: str) -> None:
    """Raises ConflictError if the task does not meet the conditions. It must be called in the thread that changes the
    catalog if a change follows, so that no other change comes between."""
    entry = runtime.catalog.entries.find(name)
    if conditions.if_none_match and entry is not None:
        raise ConflictError(f"there is a task {name!r} already")
    if not conditions.if_match:
        return
    if entry is None or entry.task is None:
        raise ConflictError(f"no task {name!r} is in service")
    wanted = {tag.strip().strip('"') for line in conditions.if_match for tag in line.split(",")}
    if wanted.isdisjoint({_ANY, entry.task.digest}):
        raise ConflictError(f"the task {name!r} is at generation {entry.task.generation}, digest {entry.task.digest}")


def check_file(conditions: Conditions, runtime: Runtime, name: str) -> None:
    """Raises ConflictError if the folder has a newer file, not yet read, that a conditional request would overwrite."""
    if (conditions.if_match or conditions.if_none_match) and runtime.catalog.unread(name):
        raise ConflictError(f"the folder has another file of the task {name!r}, which was not read yet")
