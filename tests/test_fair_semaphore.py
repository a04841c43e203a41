"""Few use a thing at once, and those who wait come by kind in rotation."""

from __future__ import annotations

import asyncio

import pytest

from service.fair_semaphore import FairSemaphore

pytestmark = pytest.mark.anyio


class Users:
    """They note when they come, and stay until they are let go."""

    def __init__(self, count: int) -> None:
        self.semaphore = FairSemaphore(count)
        self.came: list[str] = []
        self.leave = asyncio.Event()

    async def use(self, name: str) -> None:
        async with self.semaphore.slot(name[0]):
            self.came.append(name)
            await self.leave.wait()


def started(users: Users, *names: str) -> list[asyncio.Task[None]]:
    return [asyncio.create_task(users.use(name)) for name in names]


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_kinds_are_admitted_round_robin() -> None:
    users = Users(2)
    tasks = started(users, "a1", "a2", "a3", "a4", "a5", "b1", "c1", "b2")
    await settled()
    assert users.came == ["a1", "a2"]
    users.leave.set()
    await asyncio.gather(*tasks)
    assert users.came == ["a1", "a2", "a3", "b1", "c1", "a4", "b2", "a5"]


async def test_cancelled_waiter_is_skipped() -> None:
    users = Users(1)
    first, second, third = started(users, "a1", "a2", "b1")
    await settled()
    second.cancel()
    await settled()
    users.leave.set()
    await asyncio.gather(first, third)
    assert users.came == ["a1", "b1"]


async def test_a_turn_that_comes_as_its_user_leaves_is_the_next_ones() -> None:
    users = Users(1)
    first, second, third = started(users, "a1", "a2", "a3")
    await settled()
    first.cancel()  # its turn is the second's at once, which is cancelled before it runs
    await asyncio.sleep(0)
    second.cancel()
    users.leave.set()
    await third
    assert users.came[-1] == "a3"
    async with users.semaphore.slot("b"):  # none is lost
        pass


async def test_all_of_a_request_may_leave_at_once() -> None:
    users = Users(1)
    tasks = started(users, "a1", "a2", "a3", "b1")
    await settled()
    for task in tasks[:3]:
        task.cancel()
    users.leave.set()
    done = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 20)
    assert [type(one) for one in done] == [asyncio.CancelledError] * 3 + [type(None)]
    assert users.came == ["a1", "b1"]


async def test_an_error_inside_releases_the_slot() -> None:
    semaphore = FairSemaphore(1)
    with pytest.raises(ZeroDivisionError):
        async with semaphore.slot("a"):
            raise ZeroDivisionError
    async with semaphore.slot("a"):
        pass
