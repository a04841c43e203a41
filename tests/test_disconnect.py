"""Work is worth doing while somebody waits for it."""

from __future__ import annotations

import asyncio

import pytest
from asgi import incoming

from service.disconnect import unless_gone
from service.errors import ClientGoneError

pytestmark = pytest.mark.anyio


class Work:
    """Waits until it is told to finish; remembers being cancelled."""

    def __init__(self) -> None:
        self.finish = asyncio.Event()
        self.cancelled = False

    async def __call__(self) -> str:
        try:
            await self.finish.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        return "done"


async def test_the_result_is_returned_while_the_client_waits() -> None:
    work = Work()
    work.finish.set()
    assert await unless_gone(incoming([]), work()) == "done"


async def test_work_ends_when_the_client_leaves() -> None:
    work = Work()
    with pytest.raises(ClientGoneError):
        await unless_gone(incoming([{"type": "http.disconnect"}]), work())
    assert work.cancelled


async def test_work_ends_when_the_request_is_cancelled() -> None:
    work = Work()
    task = asyncio.create_task(unless_gone(incoming([]), work()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert work.cancelled


async def test_errors_of_the_work_are_raised() -> None:
    async def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await unless_gone(incoming([]), fail())
