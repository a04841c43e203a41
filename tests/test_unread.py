"""Clients that do not read their answers have as long for it as for sending, and take no room meanwhile."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing

import pictures
import pytest
from classify_requests import CLASSIFY
from serving import Files, Serving, serving, small_settings
from test_logs import logging_to

from service.http.request_id import HEADER
from service.logs import JsonFormatter

IMAGE = pictures.png()
SMALL = 4096  # bytes, of buffers of sockets
LONG = b"GET /openapi.json HTTP/1.1\r\nhost: x\r\n\r\n"  # whose answer is longer than they hold
SHORT = b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n"
ALIVE = b'{"status":"alive"}'


def ask(service: Serving, *requests: bytes) -> socket.socket:
    """Sends requests, one behind the other, and reads nothing: the answer to a LONG one fills the buffers."""
    service.server.servers[0].sockets[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL)  # and its connections'
    connection = socket.socket()
    connection.settimeout(30)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL)
    connection.connect(service.address)
    connection.sendall(b"".join(requests))
    return connection


def post(path: str, body: bytes, request_id: str = "") -> bytes:
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\n{HEADER}: {request_id}\r\ncontent-type: image/png\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


def read(connection: socket.socket, end: bytes | None = None) -> bytes:
    """What comes until it ends so, or the connection does."""
    received = b""
    try:
        while end is None or not received.endswith(end):
            part = connection.recv(SMALL)
            if not part:
                return received
            received += part
    except ConnectionError:
        pass
    return received


def connections(service: Serving) -> int:
    return service.on_loop(lambda: len(service.server.server_state.connections))


def answered(service: Serving) -> int:
    return service.on_loop(lambda: service.server.server_state.total_requests)


def whole(service: Serving) -> bytes:
    """What LONG asks for."""
    return service.client.get("/openapi.json").content


@pytest.fixture(scope="module")
def impatient(small_files: Files) -> Iterator[Serving]:
    with serving(small_settings(small_files, deadline=1)) as running:
        yield running


def test_who_reads_no_answer_takes_no_room(small_files: Files) -> None:
    with serving(small_settings(small_files, deadline=60, max_body=len(IMAGE), max_received=len(IMAGE))) as service:
        with closing(ask(service, LONG, post(CLASSIFY, IMAGE))):
            service.until(lambda: service.metric("decode_duration_seconds_count") == 1)
            service.until(lambda: service.metric("received_bytes") == 0)
            assert service.classify(IMAGE).status_code == 200
        service.until(lambda: connections(service) == 1)
        assert service.metric("received_bytes") == 0


def test_who_reads_no_answer_is_hung_up_on(impatient: Serving) -> None:
    asking = closing(ask(impatient, LONG, post(CLASSIFY, IMAGE, "unread")))
    with asking as connection, logging_to(JsonFormatter()) as log:
        impatient.until(lambda: bool(log.of("unread")))
        assert whole(impatient) not in read(connection)
    (line,) = log.of("unread")
    assert (line["status"], line["error_type"], line["tasks"]) == (499, "client_gone", ["digits"])
    assert impatient.metric("requests_total", code="499", task="digits") == 1
    assert impatient.metric("request_duration_seconds_count", code="499") == 1
    assert impatient.metric("failures_total", reason="client_gone") == 1
    assert impatient.metric("requests_total", code="200", task="digits") == 0
    assert impatient.metric("received_bytes") == 0


def test_who_does_not_read_a_refusal_is_hung_up_on_too(impatient: Serving) -> None:
    asking = closing(ask(impatient, LONG, post(CLASSIFY, b"no image", "refused")))
    with asking as connection, logging_to(JsonFormatter()) as log:
        impatient.until(lambda: bool(log.of("refused")))
        assert whole(impatient) not in read(connection)
    (line,) = log.of("refused")
    assert (line["status"], line["error_type"]) == (400, "bad_image")
    assert impatient.metric("failures_total", reason="bad_image") == 1
    assert impatient.metric("received_bytes") == 0


@pytest.mark.parametrize(
    ("path", "after"),
    [("/openapi.json", b""), ("/openapi.json", b"no HTTP\r\n\r\n"), ("/metrics", b"")],
    ids=["kept", "closing", "fits what asyncio holds back"],
)
def test_the_end_of_an_answer_is_not_waited_for_either(impatient: Serving, path: str, after: bytes) -> None:
    """Neither on a connection that is kept nor on one that is closing already."""
    size, before = len(impatient.client.get(path).content), answered(impatient)
    with closing(ask(impatient, f"GET {path} HTTP/1.1\r\nhost: x\r\n\r\n".encode(), after)) as connection:
        impatient.until(lambda: answered(impatient) > before)
        impatient.until(lambda: connections(impatient) == 1)
        assert len(read(connection)) < size


def test_who_reads_in_time_may_ask_again(impatient: Serving) -> None:
    document = whole(impatient)
    with closing(ask(impatient, LONG, SHORT)) as connection:
        assert document in read(connection, ALIVE)
        before = answered(impatient)
        with closing(ask(impatient, LONG)) as later:
            impatient.until(lambda: answered(impatient) > before)
            impatient.until(lambda: connections(impatient) == 2)
            assert document not in read(later)
        connection.sendall(SHORT)
        assert read(connection, ALIVE).startswith(b"HTTP/1.1 200 ")
