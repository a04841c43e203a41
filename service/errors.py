"""Errors with a place in the HTTP interface; every one is answered as {"error": message, "error_type": type}.

The interface's description takes of each class the status, the type, the example, and the first paragraph of its
docstring.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

_PARAMETERS = ("query", "header", "path")


def reason_of(problem: Mapping[str, Any]) -> str:
    """What one of pydantic's problems says; an error of ours without the words that pydantic puts before it."""
    if problem["type"] == "extra_forbidden":
        return "there is no such parameter" if problem["loc"][0] in _PARAMETERS else "there is no such field"
    said: str = problem["msg"]
    return said.removeprefix("Value error, ")


class ServiceError(Exception):
    """Base of every error that a client may see; the message is one sentence.

    example: a message, as in the interface's description.
    """

    status: ClassVar[int]
    error_type: ClassVar[str]
    example: ClassVar[str]

    def __init__(self, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.headers = dict(headers or {})


class BadRequestError(ServiceError):
    """The body is empty or not what its content type says, or the request is no HTTP that is accepted."""

    status = 400
    error_type = "bad_request"
    example = "the body is empty"


class BadImageError(ServiceError):
    """An image that is undecodable, truncated or animated."""

    status = 400
    error_type = "bad_image"
    example = "the image is empty"


class UnauthorizedError(ServiceError):
    """The request needs a key and has no Bearer key."""

    status = 401
    error_type = "unauthorized"
    example = "this needs the header 'Authorization: Bearer <API key>'"

    def __init__(self, message: str) -> None:
        super().__init__(message, {"www-authenticate": "Bearer"})


class ForbiddenError(ServiceError):
    """The key is wrong, or the service has no admin key, so that no task can be changed."""

    status = 403
    error_type = "forbidden"
    example = "the API key is wrong"


class UnknownTaskError(ServiceError):
    """There is no task of that name."""

    status = 404
    error_type = "unknown_task"
    example = "there is no task 'shoes'; GET /v1/tasks lists them"


class SlowRequestError(ServiceError):
    """The body did not arrive in time."""

    status = 408
    error_type = "slow_request"
    example = "the body did not arrive within 30 seconds"


class ConflictError(ServiceError):
    """The task is not, or no longer, the one that the client meant."""

    status = 409
    error_type = "conflict"
    example = "the task 'shoes' is at generation 3, digest 22a875..."


class TooLargeError(ServiceError):
    """Body, pixels or number of images over a limit."""

    status = 413
    error_type = "too_large"
    example = "the body is longer than the limit of 33554432 bytes"


class UnsupportedTypeError(ServiceError):
    """A content type or image format that is not accepted."""

    status = 415
    error_type = "unsupported_type"
    example = "content type 'text/plain' ..."


class InvalidRequestError(ServiceError):
    """A parameter or field that is missing, unknown or out of range."""

    status = 422
    error_type = "invalid_request"
    example = "query.top_k: the task has 10 labels"

    @classmethod
    def of(cls, problem: Mapping[str, Any]) -> InvalidRequestError:
        """One of pydantic's problems, with the place where it is, unless that is the whole document."""
        where = ".".join(map(str, problem["loc"]))
        return cls(f"{where}: {reason_of(problem)}" if where else reason_of(problem))


class InvalidTaskError(ServiceError):
    """A task file that cannot be put into service; what served before goes on serving."""

    status = 422
    error_type = "invalid_task"
    example = "shoes.safetensors: the file holds the task 'boots', not 'shoes'"


class OverloadedError(ServiceError):
    """The queue or the memory for bodies is full, or too much is in progress; Retry-After says when to ask again.

    retry_after: an estimate in seconds; the header has whole seconds, one at least.
    """

    status = 429
    error_type = "overloaded"
    example = "the queue has 256 places, 256 are taken and 1 are needed"

    def __init__(self, message: str, retry_after: float = 0.0) -> None:
        super().__init__(message, {"retry-after": str(max(1, math.ceil(retry_after)))})


class HeadTooLargeError(ServiceError):
    """More headers, parameters or bytes before the body than are accepted."""

    status = 431
    error_type = "head_too_large"
    example = "the request has 101 headers; the limit is 100"


class ClientGoneError(ServiceError):
    """The client closed the connection before its answer was ready, or did not read it."""

    status = 499
    error_type = "client_gone"
    example = "the client left before its answer was ready"


class NotReadyError(ServiceError):
    """The service is starting or draining, or the task is not loaded; Retry-After is there if to ask again may help.

    passing: whether to ask again may help.
    """

    status = 503
    error_type = "not_ready"
    example = "the service is starting"

    def __init__(self, message: str, *, passing: bool = True) -> None:
        super().__init__(message, {"retry-after": "1"} if passing else {})


class DeadlineExceededError(ServiceError):
    """The answer was not ready in time."""

    status = 504
    error_type = "deadline_exceeded"
    example = "no answer was ready within 30 seconds"


class StorageError(ServiceError):
    """The task folder cannot be written, as when the disk is full, or is gone or cannot be listed."""

    status = 507
    error_type = "storage"
    example = "shoes.safetensors: cannot be written: ..."


def error_kinds() -> list[type[ServiceError]]:
    """Every class of errors above; each is a direct subclass of `ServiceError`."""
    return ServiceError.__subclasses__()
