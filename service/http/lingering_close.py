"""Lingering close: a client that is still sending when it is answered can read the answer before the end."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from starlette.types import Message, Receive, Scope, Send

CLOSE = (b"connection", b"close")


class LingeringClose:
    """Wraps `receive` and `send` of a request; the answer does not end before the request's body has arrived.

    A connection that is closed with bytes unread is reset, and the client loses what it has not read yet (RFC 9112,
    section 9.6). So on a connection that is to be closed, the rest of the body is read and dropped for at most
    `seconds`, after all of the answer was sent. On connections that are kept alive, Uvicorn does the same.
    """

    def __init__(self, scope: Scope, receive: Receive, send: Send, seconds: float) -> None:
        self._receive = receive
        self._send = send
        self._seconds = seconds
        self._unread = True
        self._asked = False
        self._headers = scope["headers"]
        self._closes = scope["http_version"] == "1.0" or any(
            name == b"connection" and b"close" in value.lower() for name, value in scope["headers"]
        )

    @property
    def held_back(self) -> bool:
        """Whether the client still waits for `100 Continue` before it sends its body (RFC 9110, section 10.1.1)."""
        if self._asked:
            return False
        headers = [(name, value.lower()) for name, value in self._headers]
        has_body = any(
            name == b"transfer-encoding" or (name == b"content-length" and int(value)) for name, value in headers
        )
        return has_body and (b"expect", b"100-continue") in headers

    async def receive(self) -> Message:
        """The next event of the request."""
        self._asked = True
        message = await self._receive()
        self._unread = message.get("more_body", False)
        return message

    async def send(self, message: Message) -> None:
        """Sends a part of the answer."""
        if message["type"] == "http.response.start":
            self._closes = self._closes or CLOSE in message["headers"]
        elif self._closes and self._unread and not message.get("more_body", False):
            await self._send({**message, "more_body": True})
            message = {"type": "http.response.body"}
            with suppress(TimeoutError):
                async with asyncio.timeout(self._seconds):
                    while self._unread:
                        await self.receive()
        await self._send(message)
