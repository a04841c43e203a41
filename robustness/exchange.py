"""Bytes to a server, and what it answers, however broken either is."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from robustness.verdict import Reply

_QUIET = 0.3  # seconds in which there is an answer to what the server takes for whole
_LONGEST = 15.0  # seconds in which the connection then ends, or a whole request is answered, on a busy machine too
_LARGEST = 64 * 2**20


@dataclass(frozen=True)
class Exchange:
    """reply: the first answer; left_open: the server kept a connection whose client had no more to say; malformed: what
    came is no HTTP."""

    reply: Reply
    left_open: bool = False
    malformed: bool = False


async def exchange(port: int, request: bytes, *, whole: bool) -> Exchange:
    """Sends bytes on a connection of their own; if they are no whole request, says after a while that no more come."""
    started = time.monotonic()
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=_LARGEST)
    reading = asyncio.create_task(_reply(reader, started))
    try:
        writer.write(request)
        done, _ = await asyncio.wait([reading], timeout=_LONGEST if whole else _QUIET)
        if not done and not writer.is_closing():
            writer.write_eof()
            done, _ = await asyncio.wait([reading], timeout=_LONGEST)
        if not done:
            return Exchange(Reply(None, {}, b"", time.monotonic() - started), left_open=True)
        return Exchange(reading.result())
    except (OSError, asyncio.IncompleteReadError):
        return Exchange(Reply(None, {}, b"", time.monotonic() - started))
    except (ValueError, asyncio.LimitOverrunError):
        return Exchange(Reply(None, {}, b"", time.monotonic() - started), malformed=True)
    finally:
        reading.cancel()
        writer.close()


async def _reply(reader: asyncio.StreamReader, started: float) -> Reply:
    """The first answer of a connection, without those that only ask for more."""
    status = 100
    while status < 200:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        line, *lines = head.rstrip().split("\r\n")
        version, code, *_ = line.split(" ")
        if version != "HTTP/1.1":
            raise ValueError(f"no HTTP: {line[:50]!r}")
        status = int(code)
    pairs = [line.partition(": ") for line in lines]
    headers = {name.lower(): value for name, _, value in pairs}
    body = await _body(reader, headers) if status not in (204, 304) else b""
    return Reply(status, headers, body, time.monotonic() - started)


async def _body(reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes:
    if "content-length" in headers:
        return await reader.readexactly(int(headers["content-length"]))
    return await reader.read()
