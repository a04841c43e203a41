"""Every exception has one JSON form, and unforeseen ones tell a client nothing."""

from __future__ import annotations

import json
import logging

import pytest
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from service.errors import OverloadedError, UnknownTaskError, error_kinds
from service.http.failures import ERROR_TYPES, STATUS_CODES, Failure

WRONG = RequestValidationError([{"loc": ("query", "top_k"), "msg": "Input should be an integer", "type": "int"}])


@pytest.mark.parametrize(
    ("error", "status", "body"),
    [
        (UnknownTaskError("no"), 404, {"error": "no", "error_type": "unknown_task"}),
        (WRONG, 422, {"error": "query.top_k: Input should be an integer", "error_type": "invalid_request"}),
        (HTTPException(405), 405, {"error": "Method Not Allowed", "error_type": "method_not_allowed"}),
    ],
)
def test_errors_keep_their_status_and_sentence(error: Exception, status: int, body: dict[str, str]) -> None:
    response = Failure.of(error).response()
    assert response.status_code == status
    assert json.loads(bytes(response.body)) == body


def test_headers_travel_with_the_error() -> None:
    assert Failure.of(OverloadedError("full", 7)).response().headers["retry-after"] == "7"


def test_an_unforeseen_error_is_an_id_whose_story_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        failure = Failure.of(ZeroDivisionError("secret"))
    assert failure.status == 500
    assert failure.error_type == "internal_error"
    assert "secret" not in failure.message
    assert failure.message.removeprefix("internal error ") in caplog.text
    assert "secret" in caplog.text


def test_metrics_know_every_status_and_type() -> None:
    for error in error_kinds():
        assert error.status in STATUS_CODES
        assert error.error_type in ERROR_TYPES
