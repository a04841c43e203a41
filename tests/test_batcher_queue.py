"""Who waits for a batch has a place in the queue: it runs, leaves or is late, and the place is another's."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from batching import Clock, Model, ask, batching, settle, start

from service.batcher import Batcher, BatchError
from service.deadline import Deadline
from service.errors import DeadlineExceededError, NotReadyError, OverloadedError

pytestmark = pytest.mark.anyio


async def test_a_full_queue_refuses_and_says_when_to_come_back() -> None:
    with batching() as (subject, _):
        await ask(subject, "a", 0)
        with subject.admit(8), pytest.raises(OverloadedError) as refused, subject.admit(1):
            pytest.fail("admitted")
        assert int(refused.value.headers["retry-after"]) >= 1
        assert "8 places, 8 are taken" in refused.value.message
        assert await ask(subject, "a", 1) == [("a", 1)]


@pytest.mark.parametrize(("workers", "expected"), [(1, 8 * 34), (2, 8 * 40 / 2)])
async def test_who_is_refused_is_told_how_long_the_queue_takes(
    workers: int, expected: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch of one image that took 40 seconds counts four times as much as one of four that came next."""
    with batching(workers=workers) as (subject, model):
        model.clock, model.seconds = Clock(monkeypatch), 40.0
        await ask(subject, "a", 0, seconds=100)
        if workers == 1:
            await ask(subject, "a", 1, 2, 3, 4, seconds=100)
        with subject.admit(8), pytest.raises(OverloadedError) as refused, subject.admit(1):
            pytest.fail("admitted")
        assert int(refused.value.headers["retry-after"]) == pytest.approx(expected, abs=2)


async def test_a_reservation_grows_as_far_as_there_are_places() -> None:
    with batching() as (subject, _):
        with subject.admit(5), subject.admit(1) as reservation:
            subject.top_up(reservation, 3)
            assert subject.full
            with pytest.raises(OverloadedError, match="8 places, 5 are taken and 4 are needed"):
                subject.top_up(reservation, 4)
            assert subject.queued == 8  # what it had, it keeps
            await subject.submit(reservation, [("a", item) for item in range(3)], Deadline.after(20))
            assert subject.queued == 5
        assert (subject.queued, subject.full) == (0, False)


async def test_a_full_queue_has_a_batch_more_for_kinds_that_have_no_place() -> None:
    with batching() as (subject, _), subject.admit(7, ["hot"]), subject.admit(1, ["hot", "warm"]):
        assert subject.full
        for kinds in (["hot"], ["warm"], ["cold", "hot"], []):
            with (
                pytest.raises(OverloadedError, match="8 places, 8 are taken and 1 are needed"),
                subject.admit(1, kinds),
            ):
                pytest.fail("admitted")
        with subject.admit(1, ["cold"]) as reservation:
            subject.top_up(reservation, 4)
            with pytest.raises(OverloadedError, match="12 places, 8 are taken and 5 are needed"):
                subject.top_up(reservation, 5)
            for kinds in (["cold"], ["cooler"]):  # the batch is one for all of them
                with pytest.raises(OverloadedError), subject.admit(1, kinds):
                    pytest.fail("admitted")
            await subject.submit(reservation, [("a", item) for item in range(4)], Deadline.after(20))
        with subject.admit(1, ["cold"]):
            assert subject.queued == 9


async def test_a_place_is_free_again_once_its_item_runs() -> None:
    with batching(max_queue=1) as (subject, model):
        model.gate.clear()
        running = start(subject, "a", 0)
        await settle()
        waiting = start(subject, "a", 1)
        await settle()
        with pytest.raises(OverloadedError):
            await ask(subject, "a", 2)
        model.gate.set()
        assert await asyncio.gather(running, waiting) == [[("a", 0)], [("a", 1)]]


async def test_an_expired_item_never_enters_a_batch() -> None:
    with batching() as (subject, model):
        model.gate.clear()
        running = start(subject, "a", 0)
        await settle()
        with pytest.raises(DeadlineExceededError):
            await ask(subject, "a", 1, 2, seconds=0.01)
        assert subject.queued == 0
        model.gate.set()
        await running
        with pytest.raises(DeadlineExceededError):
            await ask(subject, "a", 3, seconds=-1)
        assert model.batches == [("a", [0])]


async def test_the_deadline_also_ends_a_batch_that_runs() -> None:
    with batching() as (subject, model):
        model.gate.clear()
        with pytest.raises(DeadlineExceededError):
            await ask(subject, "a", 0, seconds=0.01)
        model.gate.set()
        assert await ask(subject, "a", 1) == [("a", 1)]


async def test_a_group_that_is_late_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    with batching() as (subject, model):
        model.gate.clear()
        model.clock, model.seconds = Clock(monkeypatch), 10.0
        running = start(subject, "a", 0, seconds=100)
        await settle()
        late, other = start(subject, "b", 1, seconds=5), start(subject, "c", 2, seconds=1000)
        await settle()
        model.gate.set()
        async with asyncio.timeout(40):
            assert await other == [("c", 2)]
        assert await running == [("a", 0)]
        with pytest.raises(DeadlineExceededError):
            await late
        assert [group for group, _ in model.batches] == ["a", "c"]


@pytest.mark.parametrize("group", ["a", "broken"])
async def test_who_leaves_a_batch_that_runs_takes_nobody_along(group: str) -> None:
    with batching() as (subject, model):
        first = model.gate
        first.clear()
        tasks = [start(subject, "a", 0), start(subject, group, 1), start(subject, group, 2)]
        while not model.batches:
            await asyncio.sleep(0)
        model.gate = threading.Event()
        first.set()
        while len(model.batches) < 2:
            await asyncio.sleep(0)
        tasks[1].cancel()
        await settle()
        model.gate.set()
        (answer,) = await asyncio.gather(tasks[2], return_exceptions=True)
        assert isinstance(answer, BatchError) if group == "broken" else answer == [("a", 2)]
        assert model.batches == [("a", [0]), (group, [1, 2])]


async def test_who_left_is_dropped_before_batching() -> None:
    with batching() as (subject, model):
        model.gate.clear()
        tasks = [start(subject, "a", item) for item in range(3)]
        await settle()
        tasks[1].cancel()
        await settle()
        assert subject.queued == 1
        model.gate.set()
        await asyncio.wait(tasks)
        assert tasks[1].cancelled()
        assert model.batches == [("a", [0]), ("a", [2])]


async def test_who_leaves_just_as_a_worker_becomes_free_enters_no_batch() -> None:
    model = Model()
    with ThreadPoolExecutor(1) as pool:
        subject = Batcher(model.run, pool, kind=int, workers=1, max_batch=4, max_kinds=4, max_queue=8)
        model.gate.clear()
        tasks = [start(subject, "a", item) for item in range(3)]
        await settle()
        model.gate.set()
        pool.submit(int).result()  # the batch is done, of which the event loop knows nothing yet
        tasks[1].cancel()
        await asyncio.wait(tasks)
        assert model.batches == [("a", [0]), ("a", [2])]


async def test_who_leaves_from_among_other_kinds_is_dropped() -> None:
    with batching() as (subject, model):
        model.gate.clear()
        tasks = [start(subject, "a", item) for item in (0, 1, 1001, 2001)]
        await settle()
        tasks[2].cancel()
        await settle()
        model.gate.set()
        await asyncio.wait(tasks)
        assert [items for _, items in model.batches] == [[0], [1, 2001]]


async def test_draining_answers_what_was_admitted_and_admits_nothing() -> None:
    with batching() as (subject, model):
        await ask(subject, "a", 9)  # nobody was left once before
        model.gate.clear()
        tasks = [start(subject, "a", item) for item in range(2)]
        await settle()
        draining = asyncio.create_task(subject.drain())
        await settle()
        with pytest.raises(NotReadyError):
            await ask(subject, "a", 2)
        assert not draining.done()
        model.gate.set()
        await draining
        assert [task.result() for task in tasks] == [[("a", 0)], [("a", 1)]]
