"""Few calls are with the threads at once, and those that wait come by kind in rotation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any

import pytest

from service.fair_threads import FairThreads

pytestmark = pytest.mark.anyio


class Held(Executor):
    """Threads that note what they are given, and are done with nothing until they are let go."""

    def __init__(self) -> None:
        self.came: list[str] = []
        self._held: list[Future[Any]] = []
        self._gone = False

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **_: Any) -> Future[Any]:
        self.came.append(function(*arguments))
        done: Future[Any] = Future()
        self._held.append(done)
        if self._gone:
            done.set_result(None)
        return done

    def let_go(self) -> None:
        self._gone = True
        for one in self._held:
            if not one.cancelled():
                one.set_result(None)


def started(threads: FairThreads, *names: str) -> list[asyncio.Task[str]]:
    return [asyncio.create_task(threads.call(name[0], str, name)) for name in names]


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_kinds_come_round_robin() -> None:
    pool = Held()
    calls = started(FairThreads(pool, 2), "a1", "a2", "a3", "a4", "a5", "b1", "c1", "b2")
    await settled()
    assert pool.came == ["a1", "a2"]
    pool.let_go()
    await asyncio.gather(*calls)
    assert pool.came == ["a1", "a2", "a3", "b1", "c1", "a4", "b2", "a5"]


async def test_a_call_that_is_cancelled_while_it_waits_is_not_made() -> None:
    pool = Held()
    first, second, third = started(FairThreads(pool, 1), "a1", "a2", "b1")
    await settled()
    second.cancel()
    await settled()
    pool.let_go()
    await asyncio.gather(first, third)
    assert pool.came == ["a1", "b1"]


async def test_a_turn_that_comes_as_its_caller_leaves_is_the_next_ones() -> None:
    pool = Held()
    threads = FairThreads(pool, 1)
    first, second, third = started(threads, "a1", "a2", "a3")
    await settled()
    first.cancel()  # its turn is the second's at once, which is cancelled before it runs
    await asyncio.sleep(0)
    second.cancel()
    pool.let_go()
    await third
    assert pool.came[-1] == "a3"
    await threads.call("b", str, "b1")  # none is lost


async def test_all_of_a_kind_may_leave_at_once() -> None:
    pool = Held()
    calls = started(FairThreads(pool, 1), "a1", "a2", "a3", "b1")
    await settled()
    for call in calls[:3]:
        call.cancel()
    pool.let_go()
    done = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 20)
    assert [type(one) for one in done] == [asyncio.CancelledError] * 3 + [type(None)]
    assert pool.came == ["a1", "b1"]


async def test_an_error_is_the_callers_and_the_next_is_called() -> None:
    with ThreadPoolExecutor(1) as pool:
        threads = FairThreads(pool, 1)
        with pytest.raises(ZeroDivisionError):
            await threads.call("a", divmod, 1, 0)
        assert await threads.call("a", divmod, 7, 2) == (3, 1)
