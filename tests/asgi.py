"""Requests as an ASGI server hands them over."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from starlette.requests import Request

from benchmarks.load import form


def request(chunks: Iterable[bytes], content_type: str | None = None, **headers: str) -> Request:
    """A POST whose body comes in these chunks; then the client waits for its answer."""
    messages = [{"type": "http.request", "body": chunk, "more_body": True} for chunk in chunks]
    return incoming([*messages, {"type": "http.request", "body": b"", "more_body": False}], content_type, **headers)


def incoming(messages: Iterable[dict[str, Any]], content_type: str | None = None, **headers: str) -> Request:
    """A POST during which the server reports these events and then nothing more."""
    if content_type is not None:
        headers["content-type"] = content_type
    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    remaining = iter(messages)

    async def receive() -> dict[str, Any]:
        for message in remaining:
            return message
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    return Request({"type": "http", "method": "POST", "headers": raw, "path": "/", "query_string": b""}, receive)


def multipart(parts: Iterable[bytes]) -> bytes:
    """A form, of the boundary `frontier`, in which every part is a file."""
    return form(list(parts))[0]
