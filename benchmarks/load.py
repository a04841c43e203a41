"""A lean HTTP client that keeps a number of requests in flight: what it costs is taken from the service's machine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Load:
    """What came of a load. latencies: seconds, of the requests that were answered with 200; seconds: of all of it."""

    latencies: list[float]
    others: dict[int, int]
    seconds: float

    @property
    def rate(self) -> float:
        """Requests answered with 200, a second."""
        return len(self.latencies) / self.seconds

    def percentile(self, share: float) -> float:
        """A latency in seconds, such as the median at 0.5."""
        return sorted(self.latencies)[min(len(self.latencies) - 1, int(share * len(self.latencies)))]


def post(port: int, path: str, body: bytes) -> bytes:
    """A request with one image."""
    head = (
        f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-type: image/jpeg\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def load(port: int, concurrency: int, seconds: float, request: Callable[[], bytes]) -> Load:
    """Sends requests on that many connections, each the next as soon as the last is answered."""
    latencies: list[float] = []
    others: dict[int, int] = {}
    started = time.perf_counter()

    async def client() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while time.perf_counter() - started < seconds:
            sent = time.perf_counter()
            writer.write(request())
            status = await _answer(reader)
            if status == 200:
                latencies.append(time.perf_counter() - sent)
            else:
                others[status] = others.get(status, 0) + 1
        writer.close()

    await asyncio.gather(*(client() for _ in range(concurrency)))
    return Load(latencies, others, time.perf_counter() - started)


async def _answer(reader: asyncio.StreamReader) -> int:
    head = await reader.readuntil(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    headers = dict(_headers(lines[1:]))
    await reader.readexactly(int(headers.get("content-length", "0")))
    return int(lines[0].split()[1])


def _headers(lines: list[str]) -> Iterator[tuple[str, str]]:
    for line in lines:
        name, _, value = line.partition(":")
        yield name.lower(), value.strip()
