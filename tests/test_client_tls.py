"""A connection that ceases to be one of TLS after it was made: no answer, to threads and coroutines alike."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import httpx
import pytest

from fpet.client import AsyncClient, Client, UnreachableError

SECONDS = 30
NO_TLS = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"


def context(protocol: int) -> ssl.SSLContext:
    """Of TLS without certificates."""
    made = ssl.SSLContext(protocol)
    made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
    made.maximum_version = ssl.TLSVersion.TLSv1_2
    made.set_ciphers("aNULL:@SECLEVEL=0")
    return made


@contextmanager
def breaking() -> Iterator[str]:
    """Answers the first request past TLS."""

    def answer() -> None:
        connection, _ = listening.accept()
        connection.settimeout(SECONDS)
        with context(ssl.PROTOCOL_TLS_SERVER).wrap_socket(connection, server_side=True) as secured:
            secured.recv(65_536)
            os.write(secured.fileno(), NO_TLS)

    with socket.create_server(("127.0.0.1", 0)) as listening, ThreadPoolExecutor(1) as thread:
        listening.settimeout(SECONDS)
        answering = thread.submit(answer)
        yield f"https://127.0.0.1:{listening.getsockname()[1]}"
        answering.result()


def test_a_tls_error_is_unreachable_for_the_client() -> None:
    transport = httpx.HTTPTransport(verify=context(ssl.PROTOCOL_TLS_CLIENT))
    with breaking() as url, Client(url, retries=0, transport=transport) as client:
        with pytest.raises(UnreachableError, match=f"GET /v1/tasks: no answer from {url}: ") as error:
            client.tasks()
        assert error.value.received


@pytest.mark.anyio
async def test_a_tls_error_is_unreachable_for_the_async_client() -> None:
    transport = httpx.AsyncHTTPTransport(verify=context(ssl.PROTOCOL_TLS_CLIENT))
    with breaking() as url:
        async with AsyncClient(url, retries=0, transport=transport) as client:
            with pytest.raises(UnreachableError, match=f"GET /v1/tasks: no answer from {url}: ") as error:
                await client.tasks()
        assert error.value.received
