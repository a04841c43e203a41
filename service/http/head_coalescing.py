"""Write coalescing: an answer's head and the first part of its body leave in one packet, by one system call."""

from __future__ import annotations

import asyncio
from typing import Any

import h11


class HeadCoalescer:
    """A transport for Uvicorn's protocol, which writes a head as soon as the application has begun its answer.

    Only the head is held, and only until anything follows it: a part of the body, though it may be empty, or the end of
    the connection.
    """

    def __init__(self, transport: asyncio.Transport, connection: h11.Connection) -> None:
        self._transport = transport
        self._connection = connection
        self._within = False  # an answer whose head was written
        self._head = b""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Called with the bytes into which the connection has just turned an event."""
        before, self._within = self._within, self._connection.our_state is h11.SEND_BODY
        if self._within and not before:
            self._head = data
        else:
            head, self._head = self._head, b""
            self._transport.write(head + data)

    def close(self) -> None:
        """Writes what is held, and closes when that is sent."""
        if self._head:
            self._transport.write(self._head)
            self._head = b""
        self._transport.close()
