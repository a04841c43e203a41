"""What the client makes of an answer, of the service or of whatever else is there, that it does not ask for again."""

from __future__ import annotations

import pytest
from peer import Answer, peer

from fpet.client import (
    AsyncClient,
    Classification,
    Client,
    ConflictError,
    DeadlineExceededError,
    ForbiddenError,
    InvalidRequestError,
    NotFoundError,
    NotReadyError,
    OverloadedError,
    RefusedImageError,
    ServiceError,
    UnauthorizedError,
)

PLACES = ["http://127.0.0.1:1/elsewhere", "mailto:somebody", "http://[::"]


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, UnauthorizedError),
        (403, ForbiddenError),
        (404, NotFoundError),
        (408, DeadlineExceededError),
        (409, ConflictError),
        (422, InvalidRequestError),
        (429, OverloadedError),
        (500, ServiceError),
        (503, NotReadyError),
        (504, DeadlineExceededError),
    ],
)
def test_each_refusal_has_its_error(status: int, kind: type[ServiceError]) -> None:
    answer = Answer(status, {"error": "a sentence", "error_type": "word"}, {"x-request-id": "abc"})
    with peer([answer]) as there, Client(there.url) as client, pytest.raises(ServiceError) as error:
        client.task("digits")
    assert type(error.value) is kind
    assert str(error.value) == "a sentence"
    assert (error.value.status, error.value.error_type, error.value.request_id) == (status, "word", "abc")


def test_what_is_too_large_for_a_proxy_is_sent_in_smaller_requests() -> None:
    too_large = Answer(413, b"<html>", {"content-type": "text/html"})
    answered = {
        "task": "digits",
        "digest": "0a",
        "generation": 1,
        "predictions": [[{"label": "7", "index": 7, "probability": 1.0}]],
        "tokens": {"in": 9, "out": 5},
        "timings_ms": {"decode": 1.0, "queue": 1.0, "inference": 1.0, "total": 3.0},
    }
    with peer([too_large, Answer(200, answered), too_large]) as there, Client(there.url) as client:
        small, large = client.classify_each([b"small", b"large"], "digits")
    assert isinstance(small, Classification)
    assert small.best.label == "7"
    assert isinstance(large, RefusedImageError)
    assert large.status == 413
    assert str(large).startswith("image 1: the answer was 413 ")  # Python's words for it differ with its version
    assert [b"small" in one.body for one in there.received] == [True, True, False]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (Answer(502, b"<html>", {"content-type": "text/html"}), "the answer was 502 Bad Gateway"),
        *((Answer(307, b"", {"location": place}), "the answer was 307") for place in PLACES),
        (Answer(500, ["a list"]), "the answer was 500"),
        (Answer(500, {"error": None}), "the answer was 500"),
        (Answer(500, b"[" * 100_000), "the answer was 500"),
        (Answer(200, b"[" * 100_000), "GET /v1/tasks: the answer is not one of this service"),
        (Answer(200, b"<html>"), "GET /v1/tasks: the answer is not one of this service"),
        (Answer(200, {"tasks": [{"state": "loaded"}]}), "'name'"),
        (Answer(200, []), "not one of this service"),
        (Answer(200, b"no archive", {"content-encoding": "gzip"}), "GET /v1/tasks: the answer is not one of"),
    ],
    ids=[
        "proxy",
        *PLACES,
        "odd error",
        "no words",
        "deep error",
        "deep",
        "no JSON",
        "missing field",
        "list",
        "not gzip",
    ],
)
def test_answers_of_something_else_are_an_error_that_says_so(answer: Answer, message: str) -> None:
    with peer([answer]) as there, Client(there.url, retries=0) as client, pytest.raises(ServiceError) as error:
        client.tasks()
    assert message in str(error.value)


@pytest.mark.parametrize("content", [b"<html>", b"{}", {"status": "alive"}], ids=["page", "empty", "alive"])
def test_a_page_of_something_else_is_no_service_that_is_ready(content: object) -> None:
    wrong = pytest.raises(ServiceError, match=r"^GET /readyz: the answer is not one of this service: ")
    with peer([Answer(200, content)]) as there, Client(there.url) as client, wrong:
        client.ready()


def test_a_page_of_something_else_says_of_no_task_that_it_is_gone() -> None:
    wrong = pytest.raises(ServiceError, match=r"its status is 200, not 204$")
    with peer([Answer(200, b"<html>")]) as there, Client(there.url) as client, wrong:
        client.delete("digits")


@pytest.mark.anyio
@pytest.mark.parametrize("place", PLACES)
async def test_coroutines_are_redirected_nowhere_either(place: str) -> None:
    with peer([Answer(307, b"", {"location": place})]) as there:
        async with AsyncClient(there.url) as client:
            with pytest.raises(ServiceError, match="the answer was 307"):
                await client.tasks()


def test_more_fields_than_are_known_are_no_error() -> None:
    document = {"tasks": [{"name": "digits", "state": "available", "mood": "fine"}], "next": None}
    with peer([Answer(200, document)]) as there, Client(there.url) as client:
        assert client.tasks()[0].name == "digits"
