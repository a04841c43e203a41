"""What routes share."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import Depends, Header, Request
from fastapi.requests import HTTPConnection
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from service.auth import check_client
from service.deadline import Deadline
from service.exchange import Exchange, Inferred
from service.inference import Inference
from service.loaded import LoadedTask
from service.runtime import Runtime
from service.schemas import Error


def _runtime_of(request: HTTPConnection) -> Runtime:
    runtime: Runtime = request.app.state.runtime
    return runtime


async def _runtime(request: Request) -> Runtime:  # a plain function would run in a thread
    return _runtime_of(request)


RuntimeDep = Annotated[Runtime, Depends(_runtime)]

_KEY = "an API key, or the admin key"
_bearer = HTTPBearer(auto_error=False, description=_KEY)


async def _authorization(
    request: Request, _: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]
) -> str | None:
    return request.headers.get("authorization")


# The header as it was sent; the scheme is there for the API's description.
AuthorizationDep = Annotated[str | None, Depends(_authorization)]


class _Client(HTTPBearer):
    """Lets nobody through without an API key, if the service has any.

    Like `_deadline` it depends on nothing else: every inference needs both, and to solve that would cost as much again.
    """

    async def __call__(self, request: HTTPConnection) -> None:
        settings = _runtime_of(request).settings
        check_client(settings.api_keys, settings.admin_key, request.headers.get("authorization"))


client = _Client(scheme_name=_bearer.scheme_name, description=_KEY)


async def _deadline(
    request: Request,
    x_deadline_ms: Annotated[
        float | None,
        Header(gt=0, allow_inf_nan=False, description="milliseconds after which the client waits no longer"),
    ] = None,
) -> Deadline:
    longest = _runtime_of(request).settings.deadline
    return Deadline.after(longest if x_deadline_ms is None else min(longest, x_deadline_ms / 1000))


# The client's deadline, or the service's if that is sooner, counted from the arrival of the request.
DeadlineDep = Annotated[Deadline, Depends(_deadline)]


def split_names(values: Sequence[str]) -> list[str]:
    """The names in parameters of a query, each of which may have several, separated by commas."""
    return [name for value in values for name in value.split(",")]


def name_tasks(request: Request, tasks: Sequence[str]) -> None:
    """Says which tasks a request asks, where its path does not."""
    Exchange.of(request).tasks = tuple(tasks)


def note(request: Request, task: LoadedTask, inference: Inference) -> None:
    """Says what a task has just done, for the log and the trace of the request."""
    images = len(inference.outputs)
    Exchange.of(request).inferred.append(
        Inferred(
            task=task.header.name,
            images=images,
            tokens_in=images * task.tokens_in,
            tokens_out=images * inference.tokens_out,
            decode=inference.decode,
            queue=inference.queue,
            inference=inference.inference,
            at=time.time(),
        )
    )


_ERRORS = {
    400: ("the body is empty, or an image undecodable, truncated or animated", "bad_image", "the image is empty"),
    401: ("no key", "unauthorized", "changing tasks needs the header 'Authorization: Bearer <admin key>'"),
    403: ("a wrong key, or no task can be changed", "forbidden", "the admin key is wrong"),
    404: ("unknown task", "unknown_task", "there is no task 'shoes'; GET /v1/tasks lists them"),
    408: ("the body did not arrive in time", "slow_request", "the body did not arrive within 30 seconds"),
    409: ("the task is another one by now", "conflict", "the task 'shoes' is at generation 3, digest 22a875..."),
    413: ("too many bytes, pixels or images", "too_large", "the body is longer than the limit of 33554432 bytes"),
    415: ("content type or image format that is not accepted", "unsupported_type", "content type 'text/plain' ..."),
    422: ("a parameter, field or task file is wrong", "invalid_request", "query.top_k: the task has 10 labels"),
    429: (
        "the queue is full; see Retry-After",
        "overloaded",
        "the queue has 256 places, 256 are taken and 1 are needed",
    ),
    500: ("an id for the log and nothing else", "internal_error", "internal error 5f1c..."),
    503: ("starting, draining, or the task is not loaded; see Retry-After", "not_ready", "the service is starting"),
    504: ("the deadline passed", "deadline_exceeded", "no answer was ready within 30 seconds"),
    507: (
        "the task folder cannot be written",
        "storage",
        "shoes.safetensors: cannot be written: ...",
    ),
}


def errors(*codes: int) -> dict[int | str, dict[str, Any]]:
    """The answers with these codes, for the API's description."""
    return {
        code: {
            "model": Error,
            "description": _ERRORS[code][0],
            "content": {"application/json": {"example": {"error": _ERRORS[code][2], "error_type": _ERRORS[code][1]}}},
        }
        for code in codes
    }
