"""Of several processes the first changes the tasks; what the others are asked to change, they ask of it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.auth import check_admin
from service.deadline import Deadline
from service.errors import NotReadyError
from service.exchange import Exchange
from service.inputs import read_body
from service.processes.siblings import Siblings, Silence
from service.request_id import HEADER
from service.routes import admin, v2_repository
from service.settings import Settings

REQUEST = "request"

_ROUTES = [
    route
    for part in (admin, v2_repository)
    for route in part.router.routes
    if isinstance(route, APIRoute) and any(one.dependency is admin.authorized for one in route.dependencies)
]
# By which most other requests are told from these at once.
_ENDS = {route.path.rpartition("/")[2] for route in _ROUTES if "POST" in (route.methods or ())}
_OWN = frozenset({HEADER, "date"})  # headers of an answer that each process puts there itself


class ToFirst:
    """ASGI middleware of every process but the first."""

    def __init__(self, app: ASGIApp, *, settings: Settings, siblings: Siblings) -> None:
        self._app = app
        self._settings = settings
        self._siblings = siblings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one connection.

        Raises:
            UnauthorizedError, ForbiddenError: before anything is read.
            BadRequestError, TooLargeError, SlowRequestError, ClientGoneError: by the body, as the route would.
            NotReadyError: if the first process is not there, or ends before it has answered.
        """
        if not changes(scope):
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        check_admin(self._settings.admin_key, request.headers.get("authorization"))
        deadline = Deadline.after(self._settings.deadline)
        body = await read_body(request, deadline, self._settings.max_task_bytes, may_be_empty=True)
        told = await self._siblings.ask_first(REQUEST, _pack(_request(scope), body))
        if told is Silence.LOST:
            lost = "the process that changes tasks ended before it had answered; the change may have been made"
            raise NotReadyError(lost, passing=False)
        if isinstance(told, Silence):
            raise NotReadyError("the process that changes tasks is not there", passing=True)
        head, content = _unpack(told)
        response = Response(content, head["status"])
        response.raw_headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in head["headers"]]
        await response(scope, receive, send)


def changes(scope: Scope) -> bool:
    """Whether a request asks for a change of tasks, which then knows its route."""
    if scope["type"] != "http" or (scope["method"] == "POST" and scope["path"].rpartition("/")[2] not in _ENDS):
        return False
    for route in _ROUTES:
        match, found = route.matches(scope)
        if match is Match.FULL:
            scope.update(found)
            return True
    return False


async def answer(app: ASGIApp, asked: bytes) -> bytes:
    """What the application of the first process answers to a request that another was sent."""
    head, body = _unpack(asked)
    scope = {
        **head,
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "query_string": head["query_string"].encode("latin-1"),
        "headers": [(name.encode("latin-1"), value.encode("latin-1")) for name, value in head["headers"]],
        "state": {},
    }
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
    sent: list[Message] = []

    async def receive() -> Message:
        if not messages:
            await asyncio.Event().wait()  # nobody leaves: the other process waits for the answer
        return messages.pop()

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope, receive, send)
    headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in sent[0]["headers"]]
    own = [(name, value) for name, value in headers if name.lower() not in _OWN]
    content = b"".join(message.get("body", b"") for message in sent)
    return _pack({"status": sent[0]["status"], "headers": own}, content)


def _request(scope: Scope) -> dict[str, Any]:
    copied = ("method", "path", "root_path", "http_version", "scheme", "server", "client")
    headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]
    headers = [one for one in headers if one[0] != HEADER] + [(HEADER, Exchange.of(Request(scope)).id)]
    query = scope["query_string"].decode("latin-1")
    return {**{name: scope.get(name) for name in copied}, "query_string": query, "headers": headers}


def _pack(head: dict[str, Any], body: bytes) -> bytes:
    return json.dumps(head).encode() + b"\n" + body


def _unpack(data: bytes) -> tuple[dict[str, Any], bytes]:
    head, _, body = data.partition(b"\n")
    return json.loads(head), body
