"""A client that is closed while another thread still asks: that one gets its answer, and no connection is lost."""

from __future__ import annotations

import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from peer import ready

from fpet.client import Client

SECONDS = 30


class Held(httpx.HTTPTransport):
    """Connects, as httpx does, when it is told to go on."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.go_on = threading.Event(), threading.Event()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.begun.set()
        assert self.go_on.wait(SECONDS)
        return super().handle_request(request)


def test_whoever_is_last_closes_the_connection() -> None:
    transport = Held()
    with socket.create_server(("127.0.0.1", 0)) as listening, ThreadPoolExecutor(1) as thread:
        listening.settimeout(SECONDS)
        with Client(f"http://127.0.0.1:{listening.getsockname()[1]}", retries=0, transport=transport) as client:
            asked = thread.submit(client.ready)
            assert transport.begun.wait(SECONDS)
        transport.go_on.set()
        connection, _ = listening.accept()
        connection.settimeout(SECONDS)
        with connection, connection.makefile("rb") as received:
            assert b"\r\n" in iter(received.readline, b"")
            connection.sendall(ready())
            assert received.read() == b""  # it hangs up, with the answer
        assert asked.result()


def test_a_closed_client_asks_no_more() -> None:
    transport = Held()
    client = Client("http://127.0.0.1:1", transport=transport)
    client.close()
    client.close()
    with pytest.raises(RuntimeError, match="the client is closed"):
        client.tasks()
    assert not transport.begun.is_set()
