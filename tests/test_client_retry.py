"""When the client asks again: against a peer that refuses, hangs up and dawdles."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterator
from email.utils import formatdate

import pytest
from peer import REFUSED, Answer, Peer, peer

from fpet.client import (
    AsyncClient,
    Client,
    DeadlineExceededError,
    NotFoundError,
    OverloadedError,
    ServiceError,
    UnreachableError,
)

TASKS = Answer(200, {"tasks": [{"name": "digits", "state": "available"}]})
AT_ONCE = {"retry-after": "0"}
NOW = 1_000_000_000.0
CLASSIFICATION = {
    "task": "digits",
    "digest": "d",
    "generation": 1,
    "predictions": [[{"label": "5", "index": 5, "probability": 1}]],
    "tokens": {"in": 17, "out": 9},
    "timings_ms": {"decode": 1, "queue": 1, "inference": 1, "total": 3},
}


def refusal(client: Client) -> ServiceError:
    with client, pytest.raises(ServiceError) as error:
        client.tasks()
    return error.value


@pytest.mark.parametrize(
    "header",
    [lambda: {"retry-after": "1"}, lambda: {"retry-after": formatdate(NOW + 1, usegmt=True), "date": formatdate(NOW)}],
    ids=["seconds", "date"],
)
def test_the_client_waits_as_long_as_it_is_asked_to(header: Callable[[], dict[str, str]]) -> None:
    with peer([Answer(429, REFUSED, header()), TASKS]) as there, Client(there.url) as client:
        assert [task.name for task in client.tasks()] == ["digits"]
    first, second = there.received
    assert second.moment - first.moment >= 1
    left = [float(request.headers["x-deadline-ms"]) for request in there.received]
    assert left[0] - left[1] >= 1000


def test_a_lost_classification_is_sent_again_whole() -> None:
    answers = [Answer(None), Answer(503, REFUSED, AT_ONCE), Answer(200, CLASSIFICATION)]
    with peer(answers) as there, Client(there.url, retries=2) as client:
        (answer,) = client.classify(b"an image", "digits")
    assert answer.best.label == "5"
    assert [request.path for request in there.received] == ["/v1/tasks/digits/classify"] * 3
    for request in there.received:
        boundary = request.headers["content-type"].partition("boundary=")[2].encode()
        assert request.body.count(b"an image") == 1
        assert request.body.rstrip().endswith(b"--" + boundary + b"--")


@pytest.mark.parametrize("change", ["put", "delete", "load", "unload", "pin", "unpin"])
def test_a_lost_change_is_not_sent_again(change: str) -> None:
    with peer([Answer(None)]) as there, Client(there.url, key="k") as client:
        arguments = ["digits", b"file"] if change == "put" else ["digits"]
        with pytest.raises(UnreachableError, match="/v1/tasks/digits"):
            getattr(client, change)(*arguments)
    assert len(there.received) == 1


def test_it_gives_up_after_the_retries_that_it_was_given() -> None:
    with peer([Answer(429, REFUSED, AT_ONCE)] * 9) as there:
        error = refusal(Client(there.url, retries=2))
    assert isinstance(error, OverloadedError)
    assert (error.status, error.error_type, error.retry_after) == (429, "overloaded", 0)
    assert len(there.received) == 3


def test_a_service_that_is_not_ready_is_not_asked_whether_it_is_again() -> None:
    with peer([Answer(503, {"status": "starting"}, AT_ONCE)] * 2) as there, Client(there.url) as client:
        assert not client.ready()
    assert len(there.received) == 1


def test_a_proxy_whose_service_is_away_is_not_ready() -> None:
    with peer([Answer(502, b"<html>")]) as there, Client(there.url) as client:
        assert not client.ready()
    assert len(there.received) == 1


def test_nobody_is_waited_for_beyond_the_deadline() -> None:
    came, over = threading.Event(), threading.Event()

    def hold() -> None:
        came.set()
        over.wait(30)

    with peer([Answer(before=hold)]) as there, Client(there.url) as client:
        with pytest.raises(DeadlineExceededError, match=f"no answer in time from {there.url}$"):
            client.classify(b"an image", "digits", deadline=0.2)
        assert came.wait(30)  # the peer may be slower than the deadline
        over.set()
        assert 0 < float(there.received[0].headers["x-deadline-ms"]) <= 200
    assert len(there.received) == 1


def three_at_once() -> list[Answer]:
    """Answers that none gets before three have asked."""
    barrier = threading.Barrier(3, timeout=30)
    return [Answer(200, CLASSIFICATION, before=barrier.wait)] * 6


def test_several_requests_are_on_their_way_at_once() -> None:
    with peer(three_at_once()) as there, Client(there.url, retries=0, batch=1, concurrency=3) as client:
        assert len(client.classify([b"an image"] * 6, "digits")) == 6


@pytest.mark.anyio
async def test_several_coroutines_are_on_their_way_at_once() -> None:
    with peer(three_at_once()) as there:
        async with AsyncClient(there.url, retries=0, batch=1, concurrency=3) as client:
            assert len(await client.classify([b"an image"] * 6, "digits")) == 6


def failing(second: Answer) -> tuple[list[Answer], Iterator[bytes]]:
    """Two images, one a request: the first's fails when the second's has come, which meets `second`."""
    first_came, second_came = threading.Event(), threading.Event()

    def images() -> Iterator[bytes]:
        yield from (b"an image", b"another")
        first_came.wait(30)  # asked for while the first is on its way, before the second is

    def fail() -> None:
        first_came.set()
        second_came.wait(30)

    def hold() -> None:
        second_came.set()
        if second.before is not None:
            second.before()

    return [Answer(404, REFUSED, before=fail), dataclasses.replace(second, before=hold)], images()


def test_a_call_that_fails_waits_for_no_other_of_its_requests() -> None:
    over, ended = threading.Event(), threading.Event()

    def hold() -> None:
        over.wait(10)
        ended.set()

    answers, images = failing(Answer(200, CLASSIFICATION, before=hold))
    with peer(answers) as there, Client(there.url, batch=1) as client:
        with pytest.raises(NotFoundError):
            client.classify(images, "digits")
        assert not ended.is_set()
        over.set()


@pytest.mark.anyio
async def test_a_coroutine_that_fails_waits_for_no_other_of_its_requests() -> None:
    over, ended = threading.Event(), threading.Event()

    def hold() -> None:
        over.wait(10)
        ended.set()

    answers, images = failing(Answer(200, CLASSIFICATION, before=hold))
    with peer(answers) as there:
        async with AsyncClient(there.url, batch=1) as client:
            with pytest.raises(NotFoundError):
                await client.classify(images, "digits")
        assert not ended.is_set()
        over.set()


def test_a_call_that_failed_repeats_none_of_its_requests() -> None:
    answers, images = failing(Answer(429, REFUSED, {"retry-after": "20"}))  # the first has failed by then
    with peer(answers) as there, Client(there.url, batch=1) as client:
        before = threading.enumerate()
        with pytest.raises(NotFoundError):
            client.classify(images, "digits")
        for thread in threading.enumerate():
            if thread not in before and thread.name.startswith("ThreadPoolExecutor"):
                thread.join()
        assert len(there.received) == 2


@pytest.mark.anyio
async def test_coroutines_are_repeated_too() -> None:
    with peer([Answer(None), Answer(429, REFUSED, AT_ONCE), TASKS]) as there:
        async with AsyncClient(there.url, retries=2) as client:
            assert [task.name for task in await client.tasks()] == ["digits"]


def asked(there: Peer) -> str:
    (request,) = there.received
    return request.headers.get("authorization", "")


@pytest.mark.parametrize("key", ["correct horse battery", "clé"])
def test_the_key_goes_into_its_header_and_nowhere_else(key: str) -> None:
    with peer([TASKS]) as there, Client(there.url, key=key) as client:
        client.tasks()
        assert key not in repr(client)
    assert asked(there).encode("latin-1").decode() == f"Bearer {key}"
    with peer([TASKS]) as there, Client(there.url) as client:
        client.tasks()
    assert not asked(there)


def test_an_address_may_have_a_path_and_a_name_any_character() -> None:
    answers = [TASKS, Answer(200, {"name": "x", "state": "loaded"})]
    with peer(answers) as there, Client(f"{there.url}/behind/proxy/") as client:
        client.tasks()
        client.task("a/b ?é")
    assert [request.path.removeprefix("/behind/proxy/v1/tasks") for request in there.received] == [
        "",
        "/a%2Fb%20%3F%C3%A9",
    ]
