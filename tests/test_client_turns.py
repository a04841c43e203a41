"""No more requests are begun than there are connections; the others wait for a turn, and only so long."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest
from never import Never, NeverInThreads

from fpet.client import AsyncClient, Client, DeadlineExceededError, UnreachableError
from fpet.client.session import CONNECTIONS

URL = "http://127.0.0.1:1"
LATE = "not asked in time, all connections were in use"


@pytest.mark.anyio
async def test_coroutines_wait_for_a_turn() -> None:
    transport = Never()
    async with asyncio.timeout(50), AsyncClient(URL, transport=transport) as client:
        calls = [asyncio.create_task(client.tasks()) for _ in range(CONNECTIONS)]
        while transport.begun < CONNECTIONS:
            await asyncio.sleep(0)
        with pytest.raises(DeadlineExceededError, match=LATE):
            await client.classify(b"an image", "digits", deadline=1)
        assert transport.begun == CONNECTIONS
        calls[0].cancel()  # whose turn is another's then
        other = asyncio.create_task(client.tasks())
        while transport.begun == CONNECTIONS:
            await asyncio.sleep(0)
    await asyncio.gather(*calls, other, return_exceptions=True)


def test_threads_wait_for_a_turn() -> None:
    transport = NeverInThreads()
    with Client(URL, retries=0, transport=transport) as client, ThreadPoolExecutor(CONNECTIONS) as threads:
        calls = [threads.submit(client.tasks) for _ in range(CONNECTIONS)]
        try:
            assert all(transport.begun.acquire(timeout=60) for _ in calls)
            with pytest.raises(DeadlineExceededError, match=LATE):
                client.classify(b"an image", "digits", deadline=1)
            assert not transport.begun.acquire(blocking=False)
        finally:
            transport.over.set()
        assert {type(call.exception()) for call in calls} == {UnreachableError}
