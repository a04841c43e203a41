"""Transports of httpx that count requests and answer none, until they are told that it is over."""

from __future__ import annotations

import asyncio
import threading

import httpx


class Never(httpx.AsyncBaseTransport):
    """For coroutines, which are cancelled at the end."""

    def __init__(self) -> None:
        self.begun = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:  # noqa: ARG002
        self.begun += 1
        answer: asyncio.Future[httpx.Response] = asyncio.get_running_loop().create_future()
        return await answer


class NeverInThreads(httpx.BaseTransport):
    """For threads; `begun` is released once a request."""

    def __init__(self) -> None:
        self.begun, self.over = threading.Semaphore(0), threading.Event()

    def handle_request(self, request: httpx.Request) -> httpx.Response:  # noqa: ARG002
        self.begun.release()
        self.over.wait(60)  # a client that lets too many begin ends too
        raise httpx.ReadError("it is over")
