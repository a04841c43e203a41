"""Forwards requests that change tasks to the first of several processes, which alone changes them."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.auth import check_admin
from service.deadline import Deadline
from service.errors import NotReadyError
from service.http.exchange import Exchange
from service.http.request_id import HEADER
from service.inputs import read_body
from service.processes.messages import PeerMessage
from service.processes.peers import LATER, Peers, Silence
from service.routes import admin, v2_repository
from service.routes.changes import authorized
from service.routes.dependencies import application_of
from service.routing import find_route
from service.settings import Settings

REQUEST = "request"

_ROUTES = [
    route
    for part in (admin, v2_repository)
    for route in part.router.routes
    if isinstance(route, APIRoute) and any(one.dependency is authorized for one in route.dependencies)
]
# By which most other requests are told from these at once.
_ENDS = {route.path.rpartition("/")[2] for route in _ROUTES if "POST" in (route.methods or ())}
_OWN = frozenset({HEADER, "date"})  # headers of an answer that each process puts there itself


class ToFirst:
    """ASGI middleware of every process but the first; forwards requests that change tasks to it."""

    def __init__(self, app: ASGIApp, *, settings: Settings, peers: Peers) -> None:
        self._app = app
        self._settings = settings
        self._peers = peers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one connection.

        Raises:
            UnauthorizedError, ForbiddenError: without the admin key, before anything is read.
            BadRequestError, TooLargeError, SlowRequestError, ClientGoneError: if the body is one that the route would
                refuse.
            NotReadyError: if one of the processes is not ready, or the first ends before it has answered, or does not
                answer in time.
        """
        if not changes(scope):
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        check_admin(self._settings.admin_key, request.headers.get("authorization"))
        await application_of(request).cluster.require_ready()
        deadline = Deadline.after(self._settings.deadline)
        body = await read_body(request, deadline, self._settings.max_task_bytes, may_be_empty=True)
        reply = await self._ask_first(PeerMessage(_request(scope), body))
        response = Response(reply.body, reply.head["status"])
        headers = reply.head["headers"]
        response.raw_headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
        await response(scope, receive, send)

    async def _ask_first(self, request: PeerMessage) -> PeerMessage:
        try:
            # As long as the first waits for its turn, for another's change that begins before, and for the others.
            reply = await self._peers.ask_first(REQUEST, request, self._settings.deadline + 2 * LATER)
        except TimeoutError as error:
            raise NotReadyError(f"{error}; the change may be made all the same", passing=False) from error
        if reply is Silence.LOST:
            lost = "the process that changes tasks ended before it had answered; the change may have been made"
            raise NotReadyError(lost, passing=False)
        if isinstance(reply, Silence):
            raise NotReadyError("the process that changes tasks is not there", passing=True)
        return reply


def changes(scope: Scope) -> bool:
    """Whether a request asks for a change of tasks; its scope is then updated as the router would."""
    if scope["type"] != "http" or (scope["method"] == "POST" and scope["path"].rpartition("/")[2] not in _ENDS):
        return False
    return find_route(scope, _ROUTES)


async def answer(app: ASGIApp, request: PeerMessage) -> PeerMessage:
    """The answer of the first process's application to a request that another process received."""
    head = request.head
    scope = {
        **head,
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "query_string": head["query_string"].encode("latin-1"),
        "headers": [(name.encode("latin-1"), value.encode("latin-1")) for name, value in head["headers"]],
        "state": {},
    }
    messages: list[Message] = [{"type": "http.request", "body": request.body, "more_body": False}]
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
    return PeerMessage({"status": sent[0]["status"], "headers": own}, content)


def _request(scope: Scope) -> dict[str, Any]:
    copied = ("method", "path", "root_path", "http_version", "scheme", "server", "client")
    headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]
    headers = [one for one in headers if one[0] != HEADER] + [(HEADER, Exchange.of(Request(scope)).id)]
    query = scope["query_string"].decode("latin-1")
    return {**{name: scope.get(name) for name in copied}, "query_string": query, "headers": headers}
