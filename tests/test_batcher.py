"""Batches are what waits; nobody gets another's result, fails with another's batch, or is starved."""

from __future__ import annotations

import asyncio
import random
import threading
import time

import pytest
from batching import Clock, ask, batching, settle, start

from service.batcher import BatchError
from service.deadline import Deadline

pytestmark = pytest.mark.anyio


async def test_every_caller_gets_its_own_results_in_order() -> None:
    with batching(workers=2, max_queue=1000) as (subject, model):
        generator = random.Random(0)
        callers = [
            (generator.choice("abc"), [generator.randrange(1000) for _ in range(generator.randrange(1, 6))])
            for _ in range(100)
        ]
        answers = await asyncio.gather(*(ask(subject, group, *items) for group, items in callers))
        assert answers == [[(group, item) for item in items] for group, items in callers]
        assert all(len(items) <= 4 for _, items in model.batches)
        assert subject.queued == 0


async def test_a_batch_is_what_waits_when_a_worker_is_free() -> None:
    with batching() as (subject, model):
        model.gate.clear()
        tasks = [start(subject, "a", item) for item in range(7)]
        await settle()
        assert model.batches == [("a", [0])]
        assert subject.queued == 6
        model.gate.set()
        await asyncio.gather(*tasks)
        assert model.batches == [("a", [0]), ("a", [1, 2, 3, 4]), ("a", [5, 6])]


async def test_the_oldest_batch_under_way_has_an_age() -> None:
    with batching(workers=2) as (subject, model):
        assert subject.longest == 0
        model.gate.clear()
        first, second = model.gate, threading.Event()
        began = time.monotonic()
        one = start(subject, "a", 0)
        await model.ran(1)
        between, model.gate = time.monotonic(), second
        other = start(subject, "b", 0)
        await model.ran(2)
        assert time.monotonic() - between <= subject.longest <= time.monotonic() - began
        first.set()
        await one
        await settle()
        assert 0 < subject.longest <= time.monotonic() - between
        second.set()
        await other
        await settle()
        assert subject.longest == 0


async def test_idle_workers_share_one_group() -> None:
    with batching(workers=2) as (subject, model):
        assert await ask(subject, "a", 0, 1, 2) == [("a", 0), ("a", 1), ("a", 2)]
        assert sorted(items for _, items in model.batches) == [[0, 1], [2]]


async def test_as_many_groups_as_idle_workers_are_not_divided() -> None:
    with batching(workers=2) as (subject, model):
        items = [(group, item) for group in "ab" for item in range(2)]
        with subject.admit(4) as reservation:
            await subject.submit(reservation, items, Deadline.after(20))
        assert sorted(model.batches) == [("a", [0, 1]), ("b", [0, 1])]


@pytest.mark.parametrize(
    ("waiting", "expected"),
    [("aaaaa", [1, 2, 3]), ("aaaab", [1, 2, 3, 4])],  # but who waits in another group needs the other worker
)
async def test_a_worker_leaves_some_to_one_that_is_busy(waiting: str, expected: list[int]) -> None:
    with batching(workers=2) as (subject, model):
        await ask(subject, "a", 6, 7, 8, 9)  # which run no more
        model.batches.clear()
        model.gate.clear()
        first = start(subject, "a", 0)
        await settle()
        with subject.admit(5) as reservation:
            items = list(zip(waiting, range(1, 6), strict=True))
            rest = asyncio.create_task(subject.submit(reservation, items, Deadline.after(20)))
            await model.ran(2)
            assert model.batches == [("a", [0]), ("a", expected)]
            model.gate.set()
            await asyncio.gather(first, rest)
        assert len(model.batches) == 3


async def test_groups_are_never_mixed_and_served_in_turn() -> None:
    with batching(max_batch=2, max_queue=20) as (subject, model):
        model.gate.clear()
        tasks = [start(subject, "hot", 0)]
        await settle()
        tasks += [start(subject, "hot", item) for item in range(1, 7)]
        tasks += [start(subject, "cold", 8), start(subject, "mild", 9)]
        await settle()
        model.gate.set()
        await asyncio.gather(*tasks)
        assert [group for group, _ in model.batches] == ["hot", "cold", "mild", "hot", "hot", "hot"]


async def test_kinds_share_a_batch_and_take_turns_in_it() -> None:
    with batching(max_queue=20) as (subject, model):
        model.gate.clear()
        tasks = [start(subject, "a", 0)]
        await settle()
        tasks += [start(subject, "a", item) for item in (1, 2, 3, 4, 5, 1001, 2001, 2002)]
        await settle()
        model.gate.set()
        await asyncio.gather(*tasks)
        # No batch has more than two kinds; the third is served as soon as there is a place, before the hot one goes on.
        assert [items for _, items in model.batches] == [[0], [1, 1001, 2, 3], [2001, 4, 2002, 5]]


async def test_one_caller_may_ask_for_several_kinds() -> None:
    with batching(max_kinds=1) as (subject, model):
        assert await ask(subject, "a", 0, 1000, 1) == [("a", 0), ("a", 1000), ("a", 1)]
        assert [items for _, items in model.batches] == [[0, 1], [1000]]


async def test_a_failing_batch_fails_its_own_members_only() -> None:
    with batching() as (subject, model):
        model.gate.clear()
        tasks = [start(subject, group, i) for i, group in enumerate(["a", "broken", "broken", "a"])]
        await settle()
        model.gate.set()
        first, *broken, last = await asyncio.gather(*tasks, return_exceptions=True)
        assert first == [("a", 0)]
        assert last == [("a", 3)]
        for error in broken:
            assert isinstance(error, BatchError)
            assert isinstance(error.__cause__, ZeroDivisionError)


async def test_a_missing_result_fails_the_batch() -> None:
    with batching() as (subject, _), pytest.raises(BatchError):
        await ask(subject, "a", -1)


async def test_times_are_those_of_the_queue_and_of_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    with batching(max_batch=1) as (subject, model):
        model.clock, model.seconds = Clock(monkeypatch), 1000.0
        with subject.admit(2) as reservation:
            first, second = await subject.submit(reservation, [("a", 0), ("a", 1)], Deadline.after(9000))
        assert first.queued <= first.started <= first.finished <= second.started <= second.finished
        assert second.started - second.queued == pytest.approx(1000, abs=100)
        assert second.finished - second.started == pytest.approx(1000, abs=100)
