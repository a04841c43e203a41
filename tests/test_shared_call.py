"""Those who ask while a call is under way share it, and what becomes of it."""

from __future__ import annotations

import asyncio

import pytest
from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.registry import Collector

from service.exposition import Exposition
from service.shared_call import SharedCall

pytestmark = pytest.mark.anyio

OPEN_METRICS = "application/openmetrics-text; version=1.0.0"


class Counted:
    """A call that waits until it may end."""

    def __init__(self) -> None:
        self.times = 0
        self.may_end = asyncio.Event()

    async def __call__(self) -> int:
        self.times += 1
        await self.may_end.wait()
        return self.times


async def asked(call: SharedCall[int], times: int) -> list[asyncio.Task[int]]:
    callers = [asyncio.create_task(call()) for _ in range(times)]
    await asyncio.sleep(0)  # until all of them wait
    return callers


async def test_callers_at_the_same_time_share_a_call_and_later_ones_do_not() -> None:
    counted = Counted()
    shared = SharedCall(counted)
    callers = await asked(shared, 3)
    counted.may_end.set()
    assert await asyncio.gather(*callers) == [1, 1, 1]
    assert await shared() == 2


async def test_a_caller_that_is_cancelled_leaves_the_call_to_the_others() -> None:
    counted = Counted()
    shared = SharedCall(counted)
    first, second = await asked(shared, 2)
    first.cancel()
    counted.may_end.set()
    assert await second == 1
    assert first.cancelled()


async def test_all_callers_get_an_error_and_the_next_one_another_call() -> None:
    results: list[int | None] = [None, 5]

    async def fail_once() -> int:
        result = results.pop(0)
        if result is None:
            raise OSError("out")
        return result

    shared = SharedCall(fail_once)
    assert [str(error) for error in await asyncio.gather(shared(), shared(), return_exceptions=True)] == ["out"] * 2
    assert await shared() == 5


async def test_metrics_are_collected_once_for_all_who_ask_for_a_format_at_the_same_time() -> None:
    registry, collected = CollectorRegistry(), []
    Gauge("queue", "Images.", registry=registry).set(3)

    async def collect() -> Collector:
        collected.append(registry)
        return registry

    exposition = Exposition(collect)
    accepts = ["", "text/plain; version=0.0.4", OPEN_METRICS, "application/openmetrics-text; version=1.0.7", "*/*"]
    texts = await asyncio.gather(*(exposition.text(accept) for accept in accepts))
    assert len(collected) == 2
    assert [text.decode().endswith("queue 3.0\n# EOF\n") for text, _ in texts] == [False, False, True, True, False]
    assert [kind.partition(";")[0] for _, kind in texts] == [
        "application/openmetrics-text" if "openmetrics" in accept else "text/plain" for accept in accepts
    ]
