"""A server whose answers are written beforehand, to see what a client makes of them."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

REFUSED = {"error": "the queue has 256 places", "error_type": "overloaded"}


def ready(more: bytes = b"") -> bytes:
    """The answer of a service that is ready, as bytes; more: lines of its head."""
    content = b'{"status":"ready"}'
    return b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n%s\r\n%s" % (len(content), more, content)


@dataclass(frozen=True)
class Answer:
    """What a request meets; without a status the connection closes instead. before: called first; it may wait."""

    status: int | None = 200
    body: object = None
    headers: Mapping[str, str] = field(default_factory=dict)
    before: Callable[[], object] | None = None


@dataclass(frozen=True)
class Received:
    """A request, and the moment that it was read."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    moment: float


@dataclass(frozen=True)
class Peer:
    """Where the server listens, and the requests that it got."""

    url: str
    received: list[Received]


@contextmanager
def peer(answers: Sequence[Answer]) -> Iterator[Peer]:
    """Gives the answers one after the other; one request too many is closed without an answer."""
    with _Server(answers) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield Peer(f"http://127.0.0.1:{server.server_port}", server.received)
        finally:
            server.shutdown()
            thread.join()


class _Server(ThreadingHTTPServer):
    """Each connection has a thread, and all of them the same answers."""

    def __init__(self, answers: Sequence[Answer]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.received: list[Received] = []
        self._remaining = iter(answers)
        self._lock = threading.Lock()

    def next_answer(self, received: Received) -> Answer:
        with self._lock:
            self.received.append(received)
            return next(self._remaining, Answer(None))


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def handle_one_request(self) -> None:
        self.raw_requestline = self.rfile.readline()
        if not self.raw_requestline or not self.parse_request():
            self.close_connection = True
            return
        body = self.rfile.read(int(self.headers.get("content-length", "0")))
        headers = {name.lower(): value for name, value in self.headers.items()}
        answer = self.server.next_answer(Received(self.command, self.path, headers, body, time.monotonic()))
        if answer.before is not None:
            answer.before()
        self._give(answer)

    def _give(self, answer: Answer) -> None:
        if answer.status is None:
            self.close_connection = True
            return
        content = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
        self.send_response_only(answer.status)
        for name, value in {"content-length": str(len(content)), **answer.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)
