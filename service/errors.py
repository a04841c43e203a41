"""Errors with a place in the HTTP interface; every one is answered as {"error": message, "error_type": type}.

ServiceError
├── BadRequestError        400  the body is empty or not what its content type says
├── BadImageError          400  an image that is undecodable, truncated or animated
├── UnauthorizedError      401  the request needs a key and has no Bearer key
├── ForbiddenError         403  the key is wrong, or tasks cannot be changed at all
├── UnknownTaskError       404
├── SlowRequestError       408  the body did not arrive in time
├── ConflictError          409  the task is not, or no longer, the one that the client meant
├── TooLargeError          413  body, pixels or number of images over a limit
├── UnsupportedTypeError   415  content type or image format that is not accepted
├── InvalidRequestError    422  a parameter or field that is missing, unknown or out of range
├── InvalidTaskError       422  a task file that cannot be put into service
├── OverloadedError        429  the queue is full, or the memory for bodies, or too much is under way
├── HeadTooLargeError      431  headers or parameters over a limit
├── ClientGoneError        499  nobody waits for the answer any more
├── NotReadyError          503  starting, draining, or a task that is not loaded
├── DeadlineExceededError  504
└── StorageError           507  the task folder cannot be written
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar


def reason_of(problem: Mapping[str, Any]) -> str:
    """What one of pydantic's problems says; an error of ours without the words that pydantic puts before it."""
    said: str = problem["msg"]
    return said.removeprefix("Value error, ")


class ServiceError(Exception):
    """Base of every error that a client may see; the message is one sentence."""

    status: ClassVar[int]
    error_type: ClassVar[str]

    def __init__(self, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.headers = dict(headers or {})


class BadRequestError(ServiceError):
    """The body is empty or not what its content type says."""

    status = 400
    error_type = "bad_request"


class BadImageError(ServiceError):
    """An image that is undecodable, truncated or animated."""

    status = 400
    error_type = "bad_image"


class UnauthorizedError(ServiceError):
    """The request needs a key and has no Bearer key."""

    status = 401
    error_type = "unauthorized"

    def __init__(self, message: str) -> None:
        super().__init__(message, {"www-authenticate": "Bearer"})


class ForbiddenError(ServiceError):
    """The key is wrong, or the service was started without the one that is needed."""

    status = 403
    error_type = "forbidden"


class UnknownTaskError(ServiceError):
    """No task of that name."""

    status = 404
    error_type = "unknown_task"


class SlowRequestError(ServiceError):
    """The body did not arrive in time."""

    status = 408
    error_type = "slow_request"


class ConflictError(ServiceError):
    """The task is not, or no longer, the one that the client meant."""

    status = 409
    error_type = "conflict"


class TooLargeError(ServiceError):
    """Body, pixels or number of images over a limit."""

    status = 413
    error_type = "too_large"


class UnsupportedTypeError(ServiceError):
    """A content type or image format that is not accepted."""

    status = 415
    error_type = "unsupported_type"


class InvalidRequestError(ServiceError):
    """A parameter or field that is missing, unknown or out of range."""

    status = 422
    error_type = "invalid_request"

    @classmethod
    def of(cls, problem: Mapping[str, Any]) -> InvalidRequestError:
        """One of pydantic's problems, with the place where it is, unless that is the whole document."""
        where = ".".join(map(str, problem["loc"]))
        return cls(f"{where}: {reason_of(problem)}" if where else reason_of(problem))


class InvalidTaskError(ServiceError):
    """A task file that cannot be put into service; what served before goes on serving."""

    status = 422
    error_type = "invalid_task"


class OverloadedError(ServiceError):
    """There is no place for more; `retry_after` is an estimate in seconds, of which the client is told one at least."""

    status = 429
    error_type = "overloaded"

    def __init__(self, message: str, retry_after: float = 0.0) -> None:
        super().__init__(message, {"retry-after": str(max(1, math.ceil(retry_after)))})


class HeadTooLargeError(ServiceError):
    """More headers, parameters or bytes before the body than are accepted."""

    status = 431
    error_type = "head_too_large"


class ClientGoneError(ServiceError):
    """The client closed the connection before its answer was ready, or did not read it."""

    status = 499
    error_type = "client_gone"


class NotReadyError(ServiceError):
    """The service is starting or draining, or a task is not loaded; passing: whether to ask again is worth while."""

    status = 503
    error_type = "not_ready"

    def __init__(self, message: str, *, passing: bool = True) -> None:
        super().__init__(message, {"retry-after": "1"} if passing else {})


class DeadlineExceededError(ServiceError):
    """The answer was not ready in time."""

    status = 504
    error_type = "deadline_exceeded"


class StorageError(ServiceError):
    """The task folder cannot be written, as when the disk is full."""

    status = 507
    error_type = "storage"
