"""An answer that trickles in: no wait for it is long, and it is given up when the time is up all the same."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from peer import ready

from fpet.client import AsyncClient, Client, DeadlineExceededError
from fpet.client.session import CONNECTIONS

PACE, PIECES = 0.02, 500  # seconds between two bytes of an answer's content, and how many there are
HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % PIECES
# The server closes each connection after an answer: one that the client kept might end as it is used again.
READY = ready(b"connection: close\r\n")

# Of the client, and of the call.
LIMITS: list[tuple[dict[str, Any], dict[str, Any]]] = [({"timeout": 1}, {}), ({}, {"deadline": 0.2})]
limited = pytest.mark.parametrize(("options", "limit"), LIMITS, ids=["timeout", "deadline"])


class Trickling(ThreadingHTTPServer):
    """Is ready at once; any other request gets the head of an answer, and its content byte by byte."""

    request_queue_size = 512

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.received: list[str] = []
        self.left = threading.Event()  # the client hung up before it had the whole answer


class _Handler(BaseHTTPRequestHandler):
    server: Trickling

    def do_GET(self) -> None:
        self.wfile.write(READY)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.server.received.append(self.path)
        self.wfile.write(HEAD)
        self.connection.settimeout(PACE)
        for _ in range(PIECES):
            if not self._goes_on():
                self.server.left.set()
                return

    def _goes_on(self) -> bool:
        """Sends another byte, unless the client hung up while it was held back."""
        try:
            if not self.connection.recv(1):
                return False
        except TimeoutError:
            pass
        except ConnectionError:
            return False
        try:
            self.wfile.write(b" ")
        except ConnectionError:
            return False
        return True

    def log_message(self, *_: object) -> None:
        """Requests are no news."""


@contextmanager
def trickling() -> Iterator[Trickling]:
    with Trickling() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@limited
def test_content_that_trickles_in_is_given_up_in_time(options: dict[str, Any], limit: dict[str, Any]) -> None:
    with trickling() as there, Client(there.url, **options) as client:
        with pytest.raises(DeadlineExceededError, match=f"no answer in time from {there.url}$"):
            client.classify(b"an image", "digits", **limit)
        assert there.left.wait(30)
        assert client.ready()
    assert there.received == ["/v1/tasks/digits/classify"]


@pytest.mark.anyio
@limited
async def test_coroutines_give_up_too(options: dict[str, Any], limit: dict[str, Any]) -> None:
    with trickling() as there:
        async with AsyncClient(there.url, **options) as client:
            with pytest.raises(DeadlineExceededError, match=f"no answer in time from {there.url}$"):
                await client.classify(b"an image", "digits", **limit)
            assert there.left.wait(30)
            assert await client.ready()
    assert there.received == ["/v1/tasks/digits/classify"]


def require_given_up(errors: list[Any]) -> None:
    assert {type(error) for error in errors} == {DeadlineExceededError}


@pytest.mark.anyio
async def test_coroutines_that_gave_up_leave_their_connections_to_others() -> None:
    with trickling() as there:
        async with AsyncClient(there.url) as client:
            calls = [client.classify(b"an image", "digits", deadline=1) for _ in range(2 * CONNECTIONS)]
            require_given_up(await asyncio.gather(*calls, return_exceptions=True))
            ready = await asyncio.gather(*(client.ready() for _ in range(CONNECTIONS)))
    assert all(ready)


def test_threads_that_gave_up_leave_their_connections_to_others() -> None:
    with trickling() as there, Client(there.url) as client, ThreadPoolExecutor(CONNECTIONS + 20) as threads:
        calls = [threads.submit(client.classify, b"an image", "digits", deadline=1) for _ in range(CONNECTIONS + 20)]
        require_given_up([call.exception() for call in calls])
        ready = list(threads.map(lambda _: client.ready(), range(CONNECTIONS)))
    assert all(ready)
