"""The messages between the processes of a service: a JSON value and bytes."""

from __future__ import annotations

import json
from asyncio import StreamReader, StreamWriter
from typing import Any, NamedTuple

_AT_ONCE = 2**20  # bytes: a long body is not held once more in a buffer


class PeerMessage(NamedTuple):
    """head: a value of JSON's types; body: bytes."""

    head: Any = None
    body: bytes = b""


async def send(writer: StreamWriter, message: PeerMessage) -> None:
    """Writes one message."""
    head = json.dumps(message.head).encode()
    writer.write(f"{len(head)} {len(message.body)}\n".encode() + head)
    body = memoryview(message.body)
    for start in range(0, len(body), _AT_ONCE):
        writer.write(body[start : start + _AT_ONCE])
        await writer.drain()
    await writer.drain()


async def receive(reader: StreamReader) -> PeerMessage:
    """Reads one message.

    Raises:
        IncompleteReadError: if the connection ends before the message does.
    """
    head, body = map(int, (await reader.readuntil(b"\n")).split())
    return PeerMessage(json.loads(await reader.readexactly(head)), await _read(reader, body))


async def _read(reader: StreamReader, count: int) -> bytes:
    parts = []
    while count:
        part = await reader.readexactly(min(count, _AT_ONCE))
        parts.append(part)
        count -= len(part)
    return b"".join(parts)
