"""The HTTP answer to every exception."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from service.errors import InvalidRequestError, ServiceError, error_kinds
from service.http.request_id import current_id, new_id

logger = logging.getLogger(__name__)

INTERNAL = "internal_error"
STATUS_CODES = sorted({200, 500, *(kind.status for kind in error_kinds())})
ERROR_TYPES = [INTERNAL, *(kind.error_type for kind in error_kinds())]


@dataclass(frozen=True)
class Failure:
    """The answer to an error."""

    status: int
    error_type: str
    message: str
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, error: Exception) -> Failure:
        """The answer to a ServiceError, a validation error of FastAPI's, an HTTPException of the router's, or any other
        exception.

        Of the last the client learns only the id of its request, under which the log has the traceback.
        """
        match error:
            case ServiceError():
                return cls(error.status, error.error_type, error.message, error.headers)
            case RequestValidationError():
                return cls.of(InvalidRequestError.of(error.errors()[0]))
            case HTTPException():
                error_type = HTTPStatus(error.status_code).phrase.lower().replace(" ", "_")
                return cls(error.status_code, error_type, str(error.detail), error.headers or {})
            case _:
                reference = current_id() or new_id()
                logger.error("internal error %s", reference, exc_info=error)
                return cls(500, INTERNAL, f"internal error {reference}")

    def response(self) -> JSONResponse:
        """The answer, as JSON."""
        content = {"error": self.message, "error_type": self.error_type}
        return JSONResponse(content, status_code=self.status, headers=dict(self.headers))
