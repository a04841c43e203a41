"""Around every request: it is timed and counted, and an exception that nobody caught is still answered."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.failures import Failure
from service.metrics import Metrics


class Observed:
    """ASGI middleware; counts the requests that ask something of a task.

    draining: whether the service is about to stop. Its answers then close their connections: a client that goes on
    sending on one would otherwise meet its end with a request on the way.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics, draining: Callable[[], bool]) -> None:
        self._app = app
        self._metrics = metrics
        self._draining = draining

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        status: int | None = None

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if self._draining():
                    message["headers"] = [*message["headers"], (b"connection", b"close")]
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except Exception as error:
            failure = Failure.of(error)
            self._metrics.failures.labels(failure.error_type).inc()
            if status is not None:
                raise  # half an answer is out: only closing the connection can tell the client
            await failure.response()(scope, receive, watched)
        finally:
            seconds = time.perf_counter() - started
            for task in _tasks(scope):
                self._metrics.count_request(task, status or 500, seconds)


def name_tasks(request: Request, tasks: Sequence[str]) -> None:
    """Says which tasks a request asks, where its path does not."""
    request.state.tasks = tuple(tasks)


def _tasks(scope: Scope) -> Sequence[str]:
    if scope["method"] != "POST":
        return ()
    task = scope.get("path_params", {}).get("task")
    named: Sequence[str] = scope.get("state", {}).get("tasks", ())
    return named if task is None else (task,)
