"""Deadlines: what they cut off, and that nothing of it stays."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable, Coroutine, Iterator

import pytest
from starlette.requests import Request

from service.deadline import Deadline
from service.inputs import read_body

Work = Callable[["Body", Deadline], Coroutine[None, None, None]]


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


class Body:
    """What a request holds; its rest never comes."""

    async def read(self) -> None:
        await asyncio.Event().wait()


async def hold(body: Body, deadline: Deadline) -> None:
    async with deadline.limit():
        await body.read()


async def receive(body: Body, deadline: Deadline) -> None:
    async def chunk() -> dict[str, bytes]:
        await body.read()
        return {}

    await read_body(Request({"type": "http", "headers": []}, chunk), deadline, 1)


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize(
    ("work", "told"),
    [(hold, "no answer was ready within 0.001 seconds"), (receive, "the body did not arrive within 0.001 seconds")],
)
def test_what_it_cuts_off_is_freed_without_the_garbage_collector(work: Work, told: str) -> None:
    async def cut_off() -> weakref.ref[Body]:
        body = Body()
        task = asyncio.create_task(work(body, Deadline.after(0.001)))
        await asyncio.wait([task])  # `with pytest.raises` would keep this frame
        assert str(task.exception()) == told
        return weakref.ref(body)

    assert asyncio.run(cut_off())() is None


def test_an_error_before_the_deadline_is_raised_unchanged() -> None:
    async def fail(error: Exception) -> None:
        async with Deadline.after(20).limit():
            raise error

    for error in (TimeoutError("of something else"), ValueError("wrong")):
        with pytest.raises(type(error), match=str(error)):
            asyncio.run(fail(error))


def test_work_that_ends_before_the_deadline_returns() -> None:
    async def end() -> str:
        async with Deadline.after(20).limit():
            pass
        return "went on"

    assert asyncio.run(end()) == "went on"
