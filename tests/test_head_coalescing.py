"""The head of an answer and its body arrive together, and no head waits for ever."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable

import h11
import pytest
from classify_requests import CLASSIFY, IMAGES
from serving import Serving

from benchmarks.load import post
from service.http.head_coalescing import HeadCoalescer

RESPONSE = h11.Response(status_code=200, headers=[("content-length", "4")])


def first_read(service: Serving, request: bytes) -> bytes:
    """What the first read of a connection gets, which is what was written at once if it is short."""
    with socket.create_connection(service.address) as connection:
        connection.sendall(request)
        return connection.recv(2**16)


@pytest.mark.parametrize(
    "request_",
    [
        post(80, CLASSIFY, IMAGES[0], "image/png"),
        b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n",
        b"GET /nowhere HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
    ],
    ids=["classify", "livez", "closing"],
)
def test_an_answer_is_written_at_once(service: Serving, request_: bytes) -> None:
    for _ in range(20):  # two writes would often be read one by one
        head, end, body = first_read(service, request_).partition(b"\r\n\r\n")
        assert end
        lengths = [line.split(b": ")[1] for line in head.split(b"\r\n") if line.startswith(b"content-length")]
        assert lengths == [str(len(body)).encode()]


def test_an_answer_without_a_body_arrives(service: Serving) -> None:
    assert first_read(service, b"HEAD /livez HTTP/1.1\r\nhost: x\r\n\r\n").endswith(b"\r\n\r\n")


async def written(events: Iterable[h11.Event | None]) -> list[bytes]:
    """What the other side has after each of the events, of which None is the end of the connection."""
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
    connection.next_event()
    transport, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, sock=ours)
    coalescer, arrived = HeadCoalescer(transport, connection), []
    for event in events:
        if event is None:
            coalescer.close()
        else:
            coalescer.write(connection.send(event) or b"")
        try:
            arrived.append(theirs.recv(2**16))
        except BlockingIOError:
            arrived.append(b"")
    theirs.close()
    transport.close()
    return arrived


@pytest.mark.parametrize("data", [b"body", b""])
def test_only_a_head_is_held(data: bytes) -> None:
    early = h11.InformationalResponse(status_code=100, headers=[])
    parts = [h11.Data(data=data), h11.Data(data=b"body"[len(data) :])]
    hundred, head, first, second = asyncio.run(written([early, RESPONSE, *parts]))
    assert hundred.startswith(b"HTTP/1.1 100")
    assert head == b""
    assert first.startswith(b"HTTP/1.1 200")
    assert first.endswith(b"\r\n\r\n" + data)
    assert second == parts[1].data


def test_a_head_without_its_body_leaves_before_the_connection_closes() -> None:
    head, end = asyncio.run(written([RESPONSE, None]))
    assert head == b""
    assert end.startswith(b"HTTP/1.1 200")
