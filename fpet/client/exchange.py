"""Repeats a request until it is answered, without input or output of its own.

A conversation is a generator: it yields a step, `Send` or `Wait`, is sent the step's outcome, and returns the answer.
So threads and coroutines share all conversations; only who performs the steps differs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import httpx

from fpet.client.errors import DeadlineExceededError, ServiceError, UnreachableError, error_of
from fpet.client.retry import Patience, pause

Answer = TypeVar("Answer")

# What httpx takes for one value or several of the same name.
Query = Mapping[str, str | int | Sequence[str]]

_OCTETS = "application/octet-stream"
_AGAIN = {429, 503}
_SHORTEST = 1e-6


@dataclass(frozen=True, eq=False)
class Call(Generic[Answer]):
    """A request, and how to read its answer.

    images: encoded, sent as parts of a form; repeatable: whether the service may receive it twice without harm.
    """

    method: str
    path: str
    read: Callable[[httpx.Response], Answer]
    query: Query = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes | None = None
    images: Sequence[bytes] = ()
    repeatable: bool = True

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


@dataclass(frozen=True, eq=False)
class Send:
    """The step of sending a request; its outcome: the response with its content, httpx's error, or that no connection
    was free in time.

    expires: by `time.monotonic`, when the last of the content must have come, which the client enforces.
    """

    call: Call[Any]
    expires: float

    @property
    def seconds(self) -> float:
        """Seconds until `expires`; above 0."""
        return max(_SHORTEST, self.expires - time.monotonic())

    def arguments(self) -> dict[str, Any]:
        """The arguments of `request` for both clients of httpx, with the time that is left now."""
        call, seconds = self.call, self.seconds
        deadline = {"x-deadline-ms": f"{1000 * seconds:.3f}"}
        return {
            "method": call.method,
            "url": call.path,
            "params": dict(call.query),
            "headers": {**call.headers, **deadline},
            "content": call.content,
            "files": [("image", (str(i), data, _OCTETS)) for i, data in enumerate(call.images)] or None,
            "timeout": seconds,
        }


@dataclass(frozen=True)
class Wait:
    """The step of letting time pass; its outcome: None."""

    seconds: float


Outcome = httpx.Response | httpx.RequestError | TimeoutError | None
Conversation = Generator[Send | Wait, Outcome, Answer]


def ask(call: Call[Answer], patience: Patience, deadline: float) -> Conversation[Answer]:
    """Sends a request, and again where that is safe and may help; deadline: in `time.monotonic()`.

    Raises:
        ServiceError: of the last attempt.
    """
    expires = min(time.monotonic() + float(patience.timeout), deadline)
    attempt = 0
    while True:
        if time.monotonic() >= expires:
            raise DeadlineExceededError(f"{call}: no time is left to ask")
        outcome = yield Send(call, expires)
        if isinstance(outcome, httpx.Response) and outcome.is_success:
            return _read(call, outcome)
        error = _error(call, outcome)
        seconds = pause(attempt, error.retry_after)
        if attempt >= patience.retries or not _may_repeat(call, error) or time.monotonic() + seconds >= expires:
            raise error
        yield Wait(seconds)
        attempt += 1


def _may_repeat(call: Call[Any], error: ServiceError) -> bool:
    """Whether the service asked to be asked again, or the request was lost and may be received twice."""
    if isinstance(error, UnreachableError):
        return call.repeatable or not error.received
    return error.status in _AGAIN and error.retry_after is not None


def _error(call: Call[Any], outcome: Outcome) -> ServiceError:
    match outcome:
        case httpx.Response():
            return error_of(outcome)
        case TimeoutError():
            return DeadlineExceededError(f"{call}: not asked in time, all connections were in use")
        case httpx.TimeoutException():
            return DeadlineExceededError(f"{call}: no answer in time from {_server(outcome)}")
        case httpx.DecodingError():  # there was an answer: another attempt would get the same
            return ServiceError(f"{call}: the answer is not one of this service: {outcome}")
        case httpx.RequestError():
            # Only a connection that was never made is known to have carried nothing.
            received = not isinstance(outcome, httpx.ConnectError)
            reason = str(outcome) or type(outcome).__name__
            return UnreachableError(f"{call}: no answer from {_server(outcome)}: {reason}", received=received)
    raise AssertionError("of a request nothing came")


def _server(error: httpx.RequestError) -> str:
    """Where the request went, without the name and password that may stand in an address."""
    url = error.request.url
    return f"{url.scheme}://{url.netloc.decode()}"


def _read(call: Call[Answer], response: httpx.Response) -> Answer:
    try:
        return call.read(response)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise ServiceError(
            f"{call}: the answer is not one of this service: {error}",
            status=response.status_code,
            request_id=response.headers.get("x-request-id"),
        ) from error
