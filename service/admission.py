"""Who finds no place in the queue is told so at once: before the request is routed and its body is read."""

from __future__ import annotations

from starlette.requests import Request
from starlette.routing import Match
from starlette.types import Scope

from service.auth import check_client
from service.exchange import infers
from service.routes import classify, v2_infer
from service.routes.common import name_tasks, split_names
from service.runtime import Runtime

_ROUTES = [route for part in (classify, v2_infer) for route in part.router.routes if infers(route)]


def check_queue(scope: Scope, runtime: Runtime) -> None:
    """Refuses a request for which the full queue can have no place, as its route would if nothing else is wrong.

    Raises:
        ForbiddenError, UnauthorizedError: who may not ask does not learn how much there is to do.
        UnknownTaskError, NotReadyError: if a task does not answer, whether the queue is full or not.
        OverloadedError: if there is no place.
    """
    if not runtime.batcher.full:
        return
    for route in _ROUTES:
        match, found = route.matches(scope)
        if match is Match.FULL:
            scope.update(found)
            _admit(Request(scope), runtime)
            return


def _admit(request: Request, runtime: Runtime) -> None:
    check_client(runtime.settings.api_keys, runtime.settings.admin_key, request.headers.get("authorization"))
    named = request.path_params.get("task", request.path_params.get("model"))
    names = [named] if named else split_names(request.query_params.getlist("tasks"))
    if not named:
        name_tasks(request, names)
    tasks = [runtime.catalog.loaded(name) for name in names]
    with runtime.inferences.admitted(tasks):
        pass  # there are enough: none, for a list of no tasks, which its route refuses
