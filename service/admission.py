"""Early admission control: if the queue is full, a request is refused before it is routed and its body is read."""

from __future__ import annotations

from starlette.requests import Request
from starlette.types import Scope

from service.auth import check_client
from service.http.exchange import named_tasks
from service.routes import classify, explain, v2_infer
from service.routing import find_route
from service.runtime import Runtime

_QUEUED = [route for part in (classify, v2_infer) for route in part.router.routes]
_INFERRING = [*_QUEUED, *explain.router.routes]


def find_inferring(scope: Scope) -> bool:
    """Whether a request that was not routed matches a route that infers; its scope is then updated as by the router."""
    return find_route(scope, _INFERRING)


def check_queue(scope: Scope, runtime: Runtime) -> None:
    """Refuses a request to infer for which the full queue has no slot, as its route would after reading the body.

    Raises:
        ForbiddenError, UnauthorizedError: if the client may not ask; it does not learn how busy the service is.
        UnknownTaskError, NotReadyError: if a task does not answer, whether the queue is full or not.
        OverloadedError: if no slot is left.
    """
    if runtime.batcher.full and find_route(scope, _QUEUED):
        _admit(Request(scope), runtime)


def _admit(request: Request, runtime: Runtime) -> None:
    check_client(runtime.settings.api_keys, runtime.settings.admin_key, request.headers.get("authorization"))
    tasks = [runtime.catalog.entries.loaded(name) for name in named_tasks(request.scope)]
    with runtime.inferences.admitted(tasks):
        pass  # there are enough: none, for a list of no tasks, which its route refuses
