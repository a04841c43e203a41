"""What a client may meet.

FpetError
├── ImageError                 an image that cannot be read or encoded here; of it nothing is sent
└── ServiceError               any other answer that is no success
    ├── UnauthorizedError      401  the request needs a key and has no Bearer key
    ├── ForbiddenError         403  the key is wrong, or does not permit this
    ├── NotFoundError          404  no such task, or no such service at this address
    ├── ConflictError          409  the task is not, or no longer, the one that was meant
    ├── InvalidRequestError    422  an option or a task file that the service does not take
    ├── OverloadedError        429  the queue is full
    ├── NotReadyError          502, 503  starting, draining, away, or a task that is not loaded
    ├── DeadlineExceededError  408, 504, or time was up before there was an answer
    ├── UnreachableError       no answer at all
    └── RefusedImageError      400, 413, 415: an image; an ImageError as well
"""

from __future__ import annotations

import time

import httpx

from fpet.client.retry import retry_after
from fpet.errors import FpetError, ImageError


class ServiceError(FpetError):
    """Base of all; the message is one sentence, the service's own where it gave one.

    status: of HTTP, None without an answer that can be decoded; error_type: the service's word for it, or empty;
    request_id: under which its log has more, if it says so; retry_after: seconds after which it asks to be asked again,
    if it does.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        error_type: str = "",
        request_id: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.error_type = error_type
        self.request_id = request_id
        self.retry_after = retry_after


class UnauthorizedError(ServiceError):
    """The request needs a key and has no Bearer key."""


class ForbiddenError(ServiceError):
    """The key is wrong, or does not permit this."""


class NotFoundError(ServiceError):
    """There is no such task, or no such service at this address."""


class ConflictError(ServiceError):
    """The task is not, or no longer, the one that was meant."""


class InvalidRequestError(ServiceError):
    """An option or a task file that the service does not take."""


class OverloadedError(ServiceError):
    """The queue is full, and was so each time that it was asked."""


class NotReadyError(ServiceError):
    """The service is starting, draining or away from its proxy, or the task is not loaded."""


class DeadlineExceededError(ServiceError):
    """Time was up before there was an answer."""


class UnreachableError(ServiceError):
    """The connection failed, and did so each time that it was safe to try.

    received: whether the service may have got the request. It has a default because an unpickled error is first made
    of its message alone.
    """

    def __init__(self, message: str, *, received: bool = True) -> None:
        super().__init__(message)
        self.received = received


class RefusedImageError(ServiceError, ImageError):
    """An image that the service does not take, which the message names: it is damaged, animated or too large, or of a
    format that is not accepted."""

    @classmethod
    def of(cls, error: ServiceError, name: str) -> RefusedImageError:
        """The refusal of a request that had this image only."""
        return cls(
            f"{name}: {error.message}", status=error.status, error_type=error.error_type, request_id=error.request_id
        )


_BY_STATUS: dict[int, type[ServiceError]] = {
    401: UnauthorizedError,
    403: ForbiddenError,
    404: NotFoundError,
    408: DeadlineExceededError,
    409: ConflictError,
    422: InvalidRequestError,
    429: OverloadedError,
    502: NotReadyError,
    503: NotReadyError,
    504: DeadlineExceededError,
}
_ABOUT_IMAGES = {"bad_image", "unsupported_type"}
_TOO_LARGE = 413  # whoever says so: a proxy may take less than the service, and has no word for it


def concerns_images(error: ServiceError) -> bool:
    """Whether a request might be answered if it had other images, or fewer."""
    return error.status == _TOO_LARGE or error.error_type in _ABOUT_IMAGES


def error_of(response: httpx.Response) -> ServiceError:
    """An answer that is no success as the error that it tells of, whether the service or a proxy before it gave it."""
    message, error_type = _words(response)
    return _BY_STATUS.get(response.status_code, ServiceError)(
        message or f"the answer was {response.status_code} {response.reason_phrase}".rstrip(),
        status=response.status_code,
        error_type=error_type,
        request_id=response.headers.get("x-request-id"),
        retry_after=retry_after(response.headers, time.time()),
    )


def _words(response: httpx.Response) -> tuple[str, str]:
    try:
        document = response.json()
    except (ValueError, RecursionError):  # the latter of brackets within brackets
        return "", ""
    if not isinstance(document, dict):
        return "", ""
    return str(document.get("error") or ""), str(document.get("error_type") or "")
