"""A lean HTTP client: what it costs is taken from the service's machine.

`load` keeps a number of requests in flight (a closed loop), `offer` sends at a rate whatever comes back (an open one).
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Answer:
    """What a request got; headers by name in lower case; seconds: from its first byte sent to the last received."""

    status: int
    headers: dict[str, str]
    seconds: float


@dataclass(frozen=True)
class Load:
    """What came of a load; seconds: of all of it."""

    answers: list[Answer]
    seconds: float

    @property
    def latencies(self) -> list[float]:
        """In seconds, of the requests that were answered with 200."""
        return [answer.seconds for answer in self.answers if answer.status == 200]

    @property
    def rate(self) -> float:
        """Requests answered with 200, a second."""
        return len(self.latencies) / self.seconds

    @property
    def statuses(self) -> Counter[int]:
        """How many answers had which status."""
        return Counter(answer.status for answer in self.answers)

    def percentile(self, share: float) -> float:
        """A latency in seconds, such as the median at 0.5."""
        return percentile(self.latencies, share)

    def require_success(self) -> Load:
        """Itself, if every answer is 200.

        Raises:
            RuntimeError: naming what else there was.
        """
        if set(self.statuses) != {200}:
            raise RuntimeError(f"answers by status: {dict(self.statuses)}")
        return self


def percentile(values: list[float], share: float) -> float:
    """The value below which that share of them is."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def post(port: int, path: str, body: bytes, content_type: str = "image/jpeg", **headers: str) -> bytes:
    """A request; headers: further ones, with underscores for hyphens."""
    further = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    head = (
        f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-type: {content_type}\r\n"
        f"content-length: {len(body)}\r\n{further}\r\n"
    )
    return head.encode() + body


def form(images: Sequence[bytes]) -> tuple[bytes, str]:
    """The body of a request with several images, and its content type."""
    head = b'--frontier\r\ncontent-disposition: form-data; name="image"; filename="x"\r\n\r\n'
    body = b"".join(head + image + b"\r\n" for image in images) + b"--frontier--\r\n"
    return body, "multipart/form-data; boundary=frontier"


class Connection:
    """One to a port of this machine, for one request after the other."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, port: int) -> Connection:
        """A new one."""
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def ask(self, request: bytes) -> tuple[Answer, bytes]:
        """The answer to a request, and its body."""
        sent = time.perf_counter()
        self._writer.write(request)
        head = await self._reader.readuntil(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        headers = dict(_headers(lines[1:]))
        body = await self._reader.readexactly(int(headers.get("content-length", "0")))
        return Answer(int(lines[0].split()[1]), headers, time.perf_counter() - sent), body

    def close(self) -> None:
        """Closes it."""
        self._writer.close()


async def ask(port: int, request: bytes) -> tuple[Answer, bytes]:
    """The answer to a request on a connection of its own."""
    connection = await Connection.open(port)
    try:
        return await connection.ask(request)
    finally:
        connection.close()


async def load(port: int, concurrency: int, seconds: float, request: Callable[[], bytes]) -> Load:
    """Sends requests on that many connections, each the next as soon as the last is answered."""
    answers: list[Answer] = []
    started = time.perf_counter()

    async def client() -> None:
        connection = await Connection.open(port)
        while time.perf_counter() - started < seconds:
            answers.append((await connection.ask(request()))[0])
        connection.close()

    await asyncio.gather(*(client() for _ in range(concurrency)))
    return Load(answers, time.perf_counter() - started)


async def offer(port: int, rate: float, seconds: float, request: Callable[[], bytes]) -> Load:
    """Sends `rate` requests a second, evenly, and then waits for all answers."""
    answers: list[Answer] = []
    idle: list[Connection] = []

    async def send() -> None:
        connection = idle.pop() if idle else await Connection.open(port)
        answers.append((await connection.ask(request()))[0])
        idle.append(connection)

    started = time.perf_counter()
    async with asyncio.TaskGroup() as sending:
        for i in range(round(rate * seconds)):
            await asyncio.sleep(max(0.0, started + i / rate - time.perf_counter()))
            sending.create_task(send())
    for connection in idle:
        connection.close()
    return Load(answers, time.perf_counter() - started)


def _headers(lines: list[str]) -> Iterator[tuple[str, str]]:
    for line in lines:
        name, _, value = line.partition(":")
        yield name.lower(), value.strip()
