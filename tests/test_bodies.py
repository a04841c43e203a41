"""Bodies on their way have a place in the queue, or else nobody reads them; either way their clients are answered."""

from __future__ import annotations

import gzip
import http.client
import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing

import pictures
import pytest
from classify_requests import CLASSIFY, form
from full_queue import full
from inference_requests import ENCODED, INFER
from serving import Files, Serving, serving, small_settings

from service.explanations import MOST

IMAGE = pictures.png()
MANY = "/v1/classify?tasks=digits,plain"
BODIES = {CLASSIFY: IMAGE, INFER: json.dumps({"inputs": [ENCODED]}).encode()}
EXPLAIN = "/v1/tasks/digits/explain"
LONG = 24 * 2**20  # bytes, more than the buffers of two sockets hold
SECONDS = 15  # in which all is answered, half of those that a service waits for the rest of a body by default


def begin(
    service: Serving, *headers: str, path: str = CLASSIFY, version: str = "1.1", length: int = len(IMAGE)
) -> socket.socket:
    """A request of which the body is still to come."""
    lines = [f"POST {path} HTTP/{version}", "host: x", "content-type: image/png", f"content-length: {length}"]
    connection = socket.create_connection(service.address, timeout=SECONDS)
    connection.sendall("\r\n".join([*lines, *headers, "", ""]).encode())
    return connection


def answer_on(connection: socket.socket) -> http.client.HTTPResponse:
    answer = http.client.HTTPResponse(connection)
    answer.begin()
    answer.read()
    return answer


# Those that nobody reads.


def test_who_has_nothing_to_send_keeps_its_connection_whatever_it_expects(service: Serving) -> None:
    with closing(socket.create_connection(service.address)) as connection:
        for _ in range(2):
            connection.sendall(b"GET /livez HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\n\r\n")
            answer = answer_on(connection)
            assert (answer.status, answer.getheader("connection")) == (200, None)


@pytest.mark.parametrize("headers", [[], ["connection: close"]], ids=["kept", "closing"])
def test_nobody_has_to_send_an_image_to_be_refused(service: Serving, headers: list[str]) -> None:
    with full(service), closing(begin(service, *headers)) as connection:
        assert answer_on(connection).status == 429


def test_who_is_still_sending_can_read_the_answer_and_ask_again(service: Serving) -> None:
    with full(service), closing(begin(service, length=LONG)) as connection:
        connection.sendall(bytes(LONG))
        assert answer_on(connection).status == 429
        connection.sendall(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n")
        assert answer_on(connection).status == 200


@pytest.mark.parametrize(
    ("version", "headers"),
    [("1.1", ["connection: close"]), ("1.1", ["Connection: foo, Close"]), ("1.0", [])],
    ids=["close", "close among others", "1.0"],
)
def test_who_is_still_sending_can_read_the_answer_before_the_end(
    service: Serving, version: str, headers: list[str]
) -> None:
    with full(service), closing(begin(service, *headers, version=version, length=LONG)) as connection:
        connection.sendall(bytes(LONG))
        assert answer_on(connection).status == 429
        assert connection.recv(1) == b""


def test_who_is_still_sending_can_read_the_answer_of_a_service_that_stops(small_files: Files) -> None:
    with serving(small_settings(small_files, shutdown_delay=3)) as stopping:
        stopping.server.should_exit = True  # what SIGTERM sets
        stopping.until(lambda: stopping.client.get("/readyz").status_code == 503)
        with closing(begin(stopping, path="/v1/tasks/nothing/classify", length=LONG)) as connection:
            connection.sendall(bytes(LONG))
            answer = answer_on(connection)
            assert (answer.status, answer.getheader("connection")) == (404, "close")


def test_who_waits_to_send_and_is_refused_is_told_that_no_more_is_read(service: Serving) -> None:
    """It may send its body all the same, or another request where the body was to come."""
    held = begin(service, "Expect: 100-Continue", path="/v1/tasks/nothing/classify", length=LONG)
    with closing(held) as connection:
        answer = answer_on(connection)
        assert (answer.status, answer.getheader("connection")) == (404, "close")
        connection.sendall(bytes(LONG))
        assert connection.recv(1) == b""


def test_who_waits_to_send_is_told_to_and_keeps_its_connection(service: Serving) -> None:
    with closing(begin(service, "expect: 100-continue")) as connection:
        assert connection.recv(100).startswith(b"HTTP/1.1 100 ")
        for body in (IMAGE, b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n"):
            connection.sendall(body)
            answer = answer_on(connection)
            assert (answer.status, answer.getheader("connection")) == (200, None)


@pytest.mark.parametrize("headers", [[], ["connection: close"]], ids=["kept", "closing"])
@pytest.mark.parametrize("more", [b"", IMAGE[:1]], ids=["nothing", "a byte"])
def test_who_does_not_go_on_sending_is_hung_up_on(impatient: Serving, headers: list[str], more: bytes) -> None:
    with full(impatient), closing(begin(impatient, *headers)) as connection:
        assert answer_on(connection).status == 429
        connection.sendall(more)
        assert connection.recv(1) == b""


def test_who_sent_what_nobody_read_is_as_idle_as_anybody(impatient: Serving) -> None:
    with full(impatient), closing(begin(impatient)) as connection:
        assert answer_on(connection).status == 429
        connection.sendall(IMAGE)
        with closing(begin(impatient)) as later:
            assert answer_on(later).status == 429
            assert later.recv(1) == b""  # hung up on, for it sent nothing
        connection.sendall(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n")
        assert answer_on(connection).status == 200


@pytest.fixture(scope="module")
def impatient(small_files: Files) -> Iterator[Serving]:
    with serving(small_settings(small_files, deadline=1)) as running:
        yield running


# Those that are read.


@pytest.fixture(scope="module")
def narrow(small_files: Files) -> Iterator[Serving]:
    """With one place in the queue."""
    with serving(small_settings(small_files, max_queue=1, max_images=1)) as running:
        yield running


@pytest.mark.parametrize("path", BODIES)
def test_a_body_on_its_way_has_a_place(narrow: Serving, path: str) -> None:
    body = BODIES[path]
    with closing(begin(narrow, path=path, length=len(body))) as connection:
        connection.sendall(body[:10])
        narrow.until(lambda: narrow.metric("queue_size") == 1)
        assert narrow.classify(IMAGE).status_code == 429
        connection.sendall(body[10:])
        assert answer_on(connection).status == 200
    assert narrow.metric("queue_size") == 0
    assert narrow.classify(IMAGE).status_code == 200


def test_explanations_and_classifications_do_not_wait_for_one_another(service: Serving) -> None:
    with full(service):
        answer = service.client.post(EXPLAIN, content=IMAGE, headers={"content-type": "image/png"})
        assert answer.status_code == 200
    with ExitStack() as open_ones:
        for _ in range(MOST):
            connection = open_ones.enter_context(closing(begin(service, "expect: 100-continue", path=EXPLAIN)))
            assert b" 100 " in connection.recv(100)  # the body is awaited
        refused = service.client.post(EXPLAIN, content=IMAGE, headers={"content-type": "image/png"})
        assert (refused.status_code, refused.json()["error_type"]) == (429, "overloaded")
        assert service.classify(IMAGE).status_code == 200
        connection.sendall(IMAGE)
        connection.recv(1)
        answer = service.client.post(EXPLAIN, content=IMAGE, headers={"content-type": "image/png"})
        assert answer.status_code == 200


def test_bodies_together_have_a_limit(small_files: Files) -> None:
    body = IMAGE + bytes(1000 - len(IMAGE))  # what follows an image does not matter
    with serving(small_settings(small_files, max_body=1000, max_received=1500)) as service:
        with closing(begin(service, length=1000)) as first:
            first.sendall(body[:999])
            service.until(lambda: service.metric("received_bytes") == 999)
            refused = service.classify(body)
            assert (refused.status_code, refused.json()["error_type"]) == (429, "overloaded")
            assert refused.json()["error"] == "the bodies of requests fill the limit of 1500 bytes"
            first.sendall(body[999:])
            assert answer_on(first).status == 200
        assert service.metric("received_bytes") == 0
        assert service.classify(body).status_code == 200
        with closing(begin(service, length=1000)) as leaving:
            leaving.sendall(body[:999])
            service.until(lambda: service.metric("received_bytes") == 999)
        service.until(lambda: service.metric("received_bytes") == 0)


def test_what_a_body_is_decompressed_to_counts_among_them(small_files: Files) -> None:
    body, headers = BODIES[INFER].ljust(9000), {"content-type": "application/json", "content-encoding": "gzip"}
    with serving(small_settings(small_files, max_body=10_000, max_received=15_000)) as service:
        assert service.client.post(INFER, content=gzip.compress(body), headers=headers).status_code == 200
        with closing(begin(service, length=10_000)) as first:
            first.sendall(bytes(9999))
            service.until(lambda: service.metric("received_bytes") == 9999)
            refused = service.client.post(INFER, content=gzip.compress(body), headers=headers)
            assert (refused.status_code, refused.json()["error_type"]) == (429, "overloaded")
            assert service.metric("received_bytes") == 9999
        service.until(lambda: service.metric("received_bytes") == 0)


@pytest.mark.parametrize("path", [CLASSIFY, INFER])
@pytest.mark.parametrize(
    ("headers", "status"),
    [([], 408), (["x-deadline-ms: 60000"], 408), (["x-deadline-ms: 50"], 504)],
    ids=["the service's", "the service's, which is sooner", "the client's"],
)
def test_whose_deadline_ended_the_wait_for_a_body_is_told(
    impatient: Serving, path: str, headers: list[str], status: int
) -> None:
    with closing(begin(impatient, *headers, path=path)) as connection:
        assert answer_on(connection).status == status


def test_a_client_that_leaves_while_sending_releases_its_queue_slot(narrow: Serving) -> None:
    with closing(begin(narrow)):
        narrow.until(lambda: narrow.metric("queue_size") == 1)
    narrow.until(lambda: narrow.metric("queue_size") == 0)
    assert narrow.classify(IMAGE).status_code == 200


def test_for_too_many_tasks_no_image_is_read(narrow: Serving) -> None:
    """No place will ever be free for them, so that coming back is of no use, and neither are other images."""
    answer = narrow.client.post(MANY, content=b"", headers={"content-type": "image/png"})
    assert (answer.status_code, answer.json()["error_type"]) == (422, "invalid_request")
    assert answer.json()["error"] == "query.tasks: 2 tasks; the limit is 1"


def test_an_image_counts_once_a_task(service: Serving) -> None:
    limit = service.runtime.settings.max_images
    few, many = (service.client.post(MANY, **form([IMAGE] * number)) for number in (limit // 2, limit // 2 + 1))
    assert (few.status_code, many.status_code) == (200, 413)
    assert many.json()["error"] == "33 images for 2 tasks; the limit for their product is 64"


def test_a_timeout_in_the_body_counts_from_the_arrival_of_the_request(service: Serving) -> None:
    timeout = 0.5
    body = json.dumps({"inputs": [ENCODED], "parameters": {"timeout": round(1e6 * timeout)}}).encode()
    with closing(begin(service, path=INFER, length=len(body))) as connection:
        service.until(lambda: service.metric("queue_size") == 1)
        over = time.monotonic() + timeout
        service.until(lambda: time.monotonic() > over)
        connection.sendall(body)
        assert answer_on(connection).status == 504
