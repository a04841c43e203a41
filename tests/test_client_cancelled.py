"""A call that is cancelled, at whatever moment, loses no connection, as httpx may that is cancelled itself."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import anyio
import httpx
import pytest
from never import Never
from peer import ready

from fpet.client import AsyncClient
from fpet.client.session import CONNECTIONS

STEPS = 40  # of the event loop; a call takes fewer


@pytest.mark.anyio
@pytest.mark.parametrize("header", [b"", b"connection: close\r\n"], ids=["kept", "closed"])
async def test_no_connection_is_lost(header: bytes) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(ready(header))
        writer.close()

    # In the same event loop, so that every step is always the same.
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    only = httpx.AsyncHTTPTransport(limits=httpx.Limits(max_connections=1))
    async with server, AsyncClient(f"http://127.0.0.1:{port(server)}", timeout=5, transport=only) as client:
        for steps in range(STEPS):
            call = asyncio.create_task(client.ready())
            for _ in range(steps):
                await asyncio.sleep(0)
            call.cancel()
            await asyncio.wait([call])
            assert await client.ready(), f"lost at step {steps}"
    assert not call.cancelled()  # the last was answered before


@pytest.mark.anyio
@pytest.mark.parametrize("cancelled", [True, False])
async def test_a_client_that_is_closed_waits_for_no_answer(cancelled: bool) -> None:
    asked = asyncio.Event()

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await reader.read()  # until the client hangs up
        writer.close()

    server = await asyncio.start_server(hold, "127.0.0.1", 0)
    async with server, asyncio.timeout(30), AsyncClient(f"http://127.0.0.1:{port(server)}") as client:
        call = asyncio.create_task(client.ready())
        await asked.wait()
        if cancelled:
            call.cancel()
            await asyncio.wait([call])
    (end,) = await asyncio.gather(call, return_exceptions=True)
    assert call.cancelled() if cancelled else str(end) == "the client was closed before it had an answer"


@pytest.mark.anyio
async def test_who_waits_for_a_turn_is_given_up_too() -> None:
    held = 0

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal held
        held += 1
        await reader.read()
        writer.close()

    server = await asyncio.start_server(hold, "127.0.0.1", 0)
    async with server, asyncio.timeout(50), AsyncClient(f"http://127.0.0.1:{port(server)}") as client:
        calls = [asyncio.create_task(client.ready()) for _ in range(CONNECTIONS + 20)]
        while held < CONNECTIONS:
            await asyncio.sleep(0.01)
    ends = await asyncio.gather(*calls, return_exceptions=True)
    assert {str(end) for end in ends} == {"the client was closed before it had an answer"}


@pytest.mark.parametrize("steps", [0, 1, 20])
def test_the_end_of_an_event_loop_cancels_calls_and_loses_no_turn(steps: int) -> None:
    transport = Never()
    client = AsyncClient("http://127.0.0.1:1", timeout=50, transport=transport)
    calls: list[asyncio.Task[object]] = []

    async def begin() -> None:
        calls.extend(asyncio.create_task(client.tasks()) for _ in range(CONNECTIONS))
        for _ in range(steps):
            await asyncio.sleep(0)

    async def begin_all() -> None:
        await begin()
        async with asyncio.timeout(20):
            while transport.begun < begun + CONNECTIONS:
                await asyncio.sleep(0.01)

    asyncio.run(begin())
    assert all(call.cancelled() for call in calls)
    begun = transport.begun
    asyncio.run(begin_all())  # as many as there are turns


@pytest.mark.anyio
async def test_who_asks_again_and_again_keeps_no_client_from_closing() -> None:
    transport = Never()

    async def insist() -> None:
        while True:
            with suppress(RuntimeError):
                await client.tasks()

    async with AsyncClient("http://127.0.0.1:1", transport=transport) as client:
        insisting = asyncio.create_task(insist())
        while not transport.begun:
            await asyncio.sleep(0)
        try:
            async with asyncio.timeout(5):
                await client.aclose()
        finally:
            insisting.cancel()
    assert transport.begun == 1


@pytest.mark.anyio
async def test_a_scope_that_ends_the_block_closes_the_connections() -> None:
    async with asyncio.timeout(30):
        transport = Never()
        with anyio.CancelScope() as scope:
            async with AsyncClient("http://127.0.0.1:1", transport=transport) as client:
                call = asyncio.create_task(client.tasks())
                while not transport.begun:
                    await asyncio.sleep(0)
                scope.cancel()
                await call
    assert client._http.is_closed


def port(server: asyncio.Server) -> int:
    number: int = server.sockets[0].getsockname()[1]
    return number
