"""Dependencies of routes: the parts of the service, authorization, and deadlines."""

from __future__ import annotations

from collections import Counter
from typing import Annotated

from fastapi import Depends, Header, Request
from fastapi.requests import HTTPConnection
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from prometheus_client.registry import Collector

from service.application import Application
from service.auth import check_client
from service.deadline import Deadline
from service.errors import InvalidRequestError
from service.processes.cluster import Cluster
from service.runtime import Runtime


def application_of(request: HTTPConnection) -> Application:
    """The application that serves the request."""
    app: Application = request.app
    return app


def runtime_of(request: HTTPConnection) -> Runtime:
    """What the request is served with. Routes that infer ask here: each dependency would cost them as much again."""
    return application_of(request).runtime


async def _runtime(request: Request) -> Runtime:  # a plain function would run in a thread
    return runtime_of(request)


RuntimeDep = Annotated[Runtime, Depends(_runtime)]


async def _cluster(request: Request) -> Cluster:
    return application_of(request).cluster


ClusterDep = Annotated[Cluster, Depends(_cluster)]


async def _metrics(cluster: ClusterDep) -> Collector:
    return await cluster.metrics()


# The metrics of all processes; routes that read them do it in a thread, as it takes time for each series.
MetricsDep = Annotated[Collector, Depends(_metrics)]


_KEY = "an API key, or the admin key"
_bearer = HTTPBearer(auto_error=False, description=_KEY)


async def _authorization(
    request: Request, _: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]
) -> str | None:
    return request.headers.get("authorization")


# The header as it was sent; the scheme is there for the API's description.
AuthorizationDep = Annotated[str | None, Depends(_authorization)]


class _Client(HTTPBearer):
    """Refuses requests without a valid key, if the service has API keys."""

    async def __call__(self, request: HTTPConnection) -> None:
        settings = runtime_of(request).settings
        check_client(settings.api_keys, settings.admin_key, request.headers.get("authorization"))


client = _Client(scheme_name=_bearer.scheme_name, description=_KEY)

DeadlineHeader = Annotated[
    float | None, Header(gt=0, allow_inf_nan=False, description="milliseconds after which the client waits no longer")
]


def deadline_after(milliseconds: float | None, runtime: Runtime) -> Deadline:
    """The client's deadline, or the service's if that is sooner, counted from now: the arrival of the request."""
    longest = runtime.settings.deadline
    if milliseconds is None or milliseconds / 1000 >= longest:
        return Deadline.after(longest)
    return Deadline.after(milliseconds / 1000, asked_for=True)


_REPEATABLE = frozenset({"outputs", "tasks"})  # of every route's parameters


def require_single(request: Request) -> None:
    """Checks that the query repeats no parameter that has one value: either might be the one that the client means.

    Raises:
        InvalidRequestError: if a parameter other than `outputs` and `tasks` is given more than once.
    """
    for name, count in Counter(name for name, _ in request.query_params.multi_items()).items():
        if count > 1 and name not in _REPEATABLE:
            raise InvalidRequestError(f"query.{name}: it is given {count} times and may be given once")
