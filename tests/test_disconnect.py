"""Work is worth doing while somebody waits for it."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from asgi import incoming
from starlette.requests import Request
from starlette.types import Message

from service.errors import ClientGoneError
from service.http.disconnect import unless_gone

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


async def test_who_caught_the_error_goes_on_undisturbed() -> None:
    with pytest.raises(ClientGoneError):
        await unless_gone(incoming([{"type": "http.disconnect"}]), Work()())
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    await asyncio.sleep(0)


async def test_a_request_that_is_cancelled_as_its_client_leaves_is_cancelled() -> None:
    work = Work()
    task = asyncio.create_task(unless_gone(incoming([{"type": "http.disconnect"}]), work()))
    await asyncio.sleep(0)  # it waits, and what looks for its client is about to begin
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert work.cancelled


async def test_a_client_that_leaves_as_the_work_ends_stops_nothing_else() -> None:
    for turns in range(4):  # of the event loop, before the work ends

        async def work(turns: int = turns) -> str:
            for _ in range(turns):
                await asyncio.sleep(0)
            return "done"

        with contextlib.suppress(ClientGoneError):
            assert await unless_gone(incoming([{"type": "http.disconnect"}]), work()) == "done"
        for _ in range(4):
            await asyncio.sleep(0)


async def test_a_client_that_cannot_be_heard_has_not_left() -> None:
    async def broken() -> Message:
        raise ZeroDivisionError

    work = Work()
    request = Request({"type": "http"}, broken)
    task = asyncio.create_task(unless_gone(request, work()))
    for _ in range(3):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert work.cancelled
