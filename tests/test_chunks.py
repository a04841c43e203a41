"""Chunks may be small, but many tiny ones are not read: each takes as long as a larger one, while everybody waits."""

from __future__ import annotations

import http.client
import json
import socket
from contextlib import closing

import pictures
import pytest
from classify_requests import CLASSIFY
from serving import Serving
from test_bodies import LONG, SECONDS

from service.http.chunks import LEAST

IMAGE = pictures.png()
HEAD = "POST {} HTTP/1.1\r\nhost: x\r\ncontent-type: image/png\r\ntransfer-encoding: chunked\r\n\r\n"
TINY = b"1\r\nx\r\n"
LAST = b"0\r\n\r\n"
GET = b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n"
NOBODY_READS = "/v1/tasks/nothing/classify"
TOO_MANY = "the body comes in too many chunks of fewer than 64 bytes; send larger ones"


def begin(service: Serving, path: str = CLASSIFY) -> socket.socket:
    """A request of which the chunks are still to come."""
    connection = socket.create_connection(service.address, timeout=SECONDS)
    connection.sendall(HEAD.format(path).encode())
    return connection


def chunks(body: bytes, size: int) -> bytes:
    """In chunks of that size, without the last one, which is empty."""
    parts = [body[i : i + size] for i in range(0, len(body), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts)


def answer_on(connection: socket.socket) -> tuple[int, dict[str, str]]:
    answer = http.client.HTTPResponse(connection)
    answer.begin()
    return answer.status, json.loads(answer.read())


def test_who_sends_a_body_in_tiny_chunks_is_told(service: Serving) -> None:
    """Though it is still sending, as whoever is refused."""
    with closing(begin(service)) as connection:
        connection.sendall(TINY * (LONG // len(TINY)))
        assert answer_on(connection) == (400, {"error": TOO_MANY, "error_type": "bad_request"})
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(1) == b""
    assert service.metric("queue_size") == 0


def test_an_unread_body_in_tiny_chunks_closes_the_connection(service: Serving) -> None:
    with closing(begin(service, NOBODY_READS)) as connection:
        connection.sendall(TINY * (LONG // len(TINY)))
        assert answer_on(connection)[0] == 404
        assert connection.recv(1) == b""


def test_tiny_chunks_of_a_pipelined_request_are_refused(service: Serving) -> None:
    with socket.create_connection(service.address, timeout=SECONDS) as connection:
        connection.sendall(GET + HEAD.format(CLASSIFY).encode() + TINY * 600)
        answered = b""
        while TOO_MANY.encode() not in answered:
            answered += (part := connection.recv(10_000))
            assert part
        assert answered.count(b"HTTP/1.1 ") == 2
    assert service.metric("queue_size") == 0


def test_tiny_chunks_after_the_answer_close_the_connection(service: Serving) -> None:
    with closing(begin(service, NOBODY_READS)) as connection:
        assert answer_on(connection)[0] == 404
        connection.sendall(TINY * 1000 + LAST + GET)
        assert connection.recv(1) == b""


def test_large_chunks_do_not_pay_for_a_rush_of_tiny_ones(service: Serving) -> None:
    with closing(begin(service)) as connection:
        connection.sendall(chunks(IMAGE + bytes(2**20), 2**16))
        connection.sendall(TINY * 1000)
        assert answer_on(connection)[0] == 400


@pytest.mark.parametrize("size", [LEAST, 1000])
def test_small_chunks_are_as_good_as_a_whole_body(service: Serving, size: int) -> None:
    body = chunks(IMAGE + bytes(2**20), size)  # what follows an image does not matter
    with closing(begin(service)) as connection:
        connection.sendall(body + LAST)
        assert answer_on(connection)[0] == 200
        connection.sendall(GET)
        assert answer_on(connection)[0] == 200


def test_a_body_with_some_tiny_chunks_is_accepted(service: Serving) -> None:
    some = 400
    with closing(begin(service)) as connection:
        connection.sendall(chunks(IMAGE[:some], 1) + chunks(IMAGE[some:], len(IMAGE)) + LAST)
        assert answer_on(connection)[0] == 200
