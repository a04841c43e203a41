"""A request and its answer, as they are counted, logged and traced: no keys, no query, nothing of the images."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from starlette.datastructures import Headers, QueryParams
from starlette.requests import Request
from starlette.types import Scope

from service.http.request_id import HEADER, new_id

# By RFC 9110 and RFC 5789; clients may invent others, which are told apart nowhere.
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"})

# What is asked for every few seconds, whether anything happens or not.
_PROBES = frozenset({"/livez", "/readyz", "/metrics", "/v2/health/live", "/v2/health/ready"})

# Key of a scope's state, if its connection ended because the client did not read: no answer, or not all of it, left.
UNTAKEN = "untaken"


@dataclass(frozen=True)
class Inferred:
    """What one task did in a request: tokens are summed over its images, times are in seconds.

    at: time.time() of its end; queue ends where inference begins, and decode where queue begins.
    """

    task: str
    images: int
    tokens_in: int
    tokens_out: int
    decode: float
    queue: float
    inference: float
    at: float


@dataclass
class Exchange:
    """Filled in while the request is served.

    at: time.time() of its arrival; client: address; traceparent, tracestate: by W3C's Trace Context; route: template
    of the path, None if no route matched; infers: whether the route asks tasks about images; seconds: that it took;
    received, sent: bytes of the bodies; held: received bytes that count in the body budget; error_type: as the client
    was told; trace_id: 32 hex digits.
    """

    id: str
    method: str
    client: str | None
    traceparent: str | None
    tracestate: str | None
    at: float = field(default_factory=time.time)
    route: str | None = None
    infers: bool = False
    status: int = 500  # unless an answer begins
    error_type: str | None = None
    tasks: Sequence[str] = ()
    seconds: float = 0.0
    received: int = 0
    held: int = 0
    sent: int = 0
    inferred: list[Inferred] = field(default_factory=list)
    trace_id: str | None = None

    @classmethod
    def begin(cls, scope: Scope) -> Exchange:
        """The exchange that begins with this request, which from then on carries it."""
        headers = Headers(scope=scope)
        exchange = cls(
            id=new_id(headers.get(HEADER)),
            method=scope["method"] if scope["method"] in _METHODS else "_OTHER",
            client=scope["client"][0] if scope.get("client") else None,
            traceparent=headers.get("traceparent"),
            tracestate=",".join(headers.getlist("tracestate")) or None,  # which may be split (W3C Trace Context, 3.3.1)
        )
        scope.setdefault("state", {})["exchange"] = exchange
        return exchange

    @classmethod
    def of(cls, request: Request) -> Exchange:
        """The one that the request carries."""
        exchange: Exchange = request.state.exchange
        return exchange

    @property
    def probes(self) -> bool:
        """Whether it asked for health or metrics: of these no log tells unless it is asked, and no trace."""
        return self.route in _PROBES

    def end(self, scope: Scope, seconds: float) -> None:
        """Notes the duration, and what the router put into the scope."""
        self.seconds = seconds
        route = scope.get("route")
        self.route = getattr(route, "path", None)
        self.infers = isinstance(route, InferenceRoute)
        self.tasks = named_tasks(scope)


class InferenceRoute:
    """Base of the routes that ask tasks about images: the bodies of requests to them count in the body budget until
    these are answered, and the requests are counted and timed as requests to their tasks."""


def named_tasks(scope: Scope) -> list[str]:
    """The tasks that a routed request names: in its path or, if its route infers, in its query."""
    parameters = scope.get("path_params", {})
    task = parameters.get("task", parameters.get("model"))
    if task is not None:
        return [task]
    if not isinstance(scope.get("route"), InferenceRoute):
        return []
    return split_names(QueryParams(scope["query_string"]).getlist("tasks"))


def split_names(values: Sequence[str]) -> list[str]:
    """The names in parameters of a query, each of which may have several, separated by commas; none is empty."""
    names = [name.strip() for value in values for name in value.split(",")]
    return [name for name in names if name]
