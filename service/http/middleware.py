"""The outer middleware: every request has an id and limits, is timed and observed, and is answered whatever happens."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.errors import BadRequestError, ClientGoneError, NotReadyError
from service.http.body_budget import BodyBudget
from service.http.chunks import IN_TINY_CHUNKS, LEAST
from service.http.exchange import UNTAKEN, Exchange, InferenceRoute
from service.http.failures import Failure
from service.http.in_flight import InFlight
from service.http.limits import check_body
from service.http.lingering_close import CLOSE, LingeringClose
from service.http.request_id import HEADER, identified
from service.metrics import Metrics

_TINY = f"the body comes in too many chunks of fewer than {LEAST} bytes; send larger ones"


@dataclass(frozen=True, eq=False)
class Observed:
    """ASGI middleware; counts the requests that ask tasks about images.

    checks: called with the scope of every request; what they raise refuses it. find_route: called with the scope of a
    request that was not routed, to find the route that infers which it asked for, if any. draining: whether the service
    is about to stop; answers then close their connections, so that no further request is sent on a connection that is
    about to end. patience: seconds for the rest of a body that was answered before it had arrived, if its connection is
    to be closed. body_budget: counts the bodies of requests to infer until these are answered, whether or not the
    client reads the answers. in_flight: tracks every request. observers: called with every exchange at its end, within
    its request.
    """

    app: ASGIApp
    metrics: Metrics
    checks: Sequence[Callable[[Scope], None]]
    find_route: Callable[[Scope], object]
    draining: Callable[[], bool]
    patience: float
    body_budget: BodyBudget
    in_flight: InFlight
    observers: Sequence[Callable[[Exchange], None]]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one connection."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = time.perf_counter()
        exchange = Exchange.begin(scope)
        with identified(exchange.id), self.in_flight.tracked():
            try:
                await self._serve(exchange, scope, receive, send)
            finally:
                self.body_budget.give_back(exchange)
                if UNTAKEN in scope["state"] and exchange.error_type is None:
                    gone = ClientGoneError("the client did not read its answer")
                    exchange.status = record_failure(gone, exchange, self.metrics).status
                if "route" not in scope:
                    self.find_route(scope)
                exchange.end(scope, time.perf_counter() - started)
                self._observe(exchange)

    async def _serve(self, exchange: Exchange, scope: Scope, receive: Receive, send: Send) -> None:
        """Has the application answer, or answers in its place if it raises or is cancelled before it began to."""
        lingering = LingeringClose(scope, receive, send, self.patience)
        answering = False

        async def arriving() -> Message:
            message = await lingering.receive()
            if IN_TINY_CHUNKS in scope["state"]:
                raise BadRequestError(_TINY, {"connection": "close"})
            check_body(scope)
            self._hold(exchange, scope, len(message.get("body", b"")))
            return message

        async def leaving(message: Message) -> None:
            nonlocal answering
            if message["type"] == "http.response.start":
                answering = True
                # A refused client may send the rest of the body or the next request, and has to be told which.
                self._begin_answer(exchange, message, closing=self.draining() or lingering.held_back)
            exchange.sent += len(message.get("body", b""))
            await lingering.send(message)

        try:
            for check in self.checks:
                check(scope)
            await self.app(scope, arriving, leaving)
        except Exception as error:
            failure = record_failure(error, exchange, self.metrics)
            if answering:
                raise  # half an answer is out: only closing the connection can tell the client
            await failure.response()(scope, arriving, leaving)
        except asyncio.CancelledError:  # the server stops, and does not wait any longer for what it has begun
            if answering:
                raise
            lingering = LingeringClose(scope, receive, send, 0)  # nor for the rest of a body
            # The outcome is unknown: a change may still be made.
            stopped = NotReadyError("the service stopped before it had an answer", passing=False)
            await record_failure(stopped, exchange, self.metrics).response()(scope, arriving, leaving)

    def _begin_answer(self, exchange: Exchange, start: Message, *, closing: bool) -> None:
        """Adds the headers that every answer has."""
        exchange.status = start["status"]
        if exchange.error_type is None:  # the frames of an error hold the body until its few words are sent
            self.body_budget.give_back(exchange)
        headers = [(HEADER.encode(), exchange.id.encode())]
        if closing:
            headers.append(CLOSE)
        start["headers"] = [*start["headers"], *headers]

    def _hold(self, exchange: Exchange, scope: Scope, size: int) -> None:
        """Counts what came of a body; raises OverloadedError if there is no room for it."""
        exchange.received += size
        if isinstance(scope.get("route"), InferenceRoute):
            self.body_budget.take(exchange, size)

    def _observe(self, exchange: Exchange) -> None:
        if exchange.status >= 400:  # names of no task, which clients choose, are written nowhere
            exchange.tasks = list(dict.fromkeys(map(self.metrics.tasks.of, exchange.tasks)))
        if exchange.method == "POST" and exchange.infers:
            self.metrics.count_request(exchange.tasks, exchange.status, exchange.seconds)
        for observe in self.observers:
            observe(exchange)


def record_failure(error: Exception, exchange: Exchange, metrics: Metrics) -> Failure:
    """The answer to an error, which is counted in the metrics and noted in the exchange."""
    failure = Failure.of(error)
    exchange.error_type = failure.error_type
    metrics.failures.labels(failure.error_type).inc()
    return failure
