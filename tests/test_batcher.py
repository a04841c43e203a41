"""Batches are what waits; nobody gets another's result, waits for a dead client, or is starved."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from service.batcher import Batcher, BatchError
from service.deadline import Deadline
from service.errors import DeadlineExceededError, NotReadyError, OverloadedError

pytestmark = pytest.mark.anyio

WORKERS = 2


class Model:
    """Answers `(group, item)`; holds every batch until opened, and remembers what it ran."""

    def __init__(self) -> None:
        self.batches: list[tuple[str, list[int]]] = []
        self.gate = threading.Event()
        self.gate.set()

    def run(self, group: str, items: Sequence[int]) -> list[tuple[str, int]]:
        self.batches.append((group, list(items)))
        assert self.gate.wait(timeout=20)
        if group == "broken":
            raise ZeroDivisionError("broken")
        return [(group, item) for item in items if item >= 0]


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(WORKERS) as pool:
        yield pool


@pytest.fixture
def model() -> Model:
    return Model()


def batcher(model: Model, pool: ThreadPoolExecutor, **changes: int) -> Batcher[str, int, tuple[str, int]]:
    """The kind of an item is how many thousands it has."""
    limits = {"workers": 1, "max_batch": 4, "max_kinds": 2, "max_queue": 8, **changes}
    return Batcher(model.run, pool, kind=lambda item: item // 1000, **limits)


async def ask(
    batcher: Batcher[str, int, tuple[str, int]], group: str, *items: int, seconds: float = 20
) -> list[object]:
    with batcher.admit(len(items)) as ticket:
        done = await batcher.submit(ticket, [(group, item) for item in items], Deadline.after(seconds))
    return [one.result for one in done]


def start(*args: object, **kwargs: float) -> asyncio.Task[list[object]]:
    return asyncio.create_task(ask(*args, **kwargs))  # type: ignore[arg-type]


async def settle() -> None:
    """Lets every task run until it waits for a thread."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_every_caller_gets_its_own_results_in_order(model: Model, pool: ThreadPoolExecutor) -> None:
    subject = batcher(model, pool, workers=2, max_queue=1000)
    generator = random.Random(0)
    callers = [
        (generator.choice("abc"), [generator.randrange(1000) for _ in range(generator.randrange(1, 6))])
        for _ in range(100)
    ]
    answers = await asyncio.gather(*(ask(subject, group, *items) for group, items in callers))
    assert answers == [[(group, item) for item in items] for group, items in callers]
    assert all(len(items) <= 4 for _, items in model.batches)
    assert subject.queued == 0


async def test_a_batch_is_what_waits_when_a_worker_is_free(model: Model, pool: ThreadPoolExecutor) -> None:
    subject = batcher(model, pool)
    model.gate.clear()
    tasks = [start(subject, "a", item) for item in range(7)]
    await settle()
    assert model.batches == [("a", [0])]
    assert subject.queued == 6
    model.gate.set()
    await asyncio.gather(*tasks)
    assert model.batches == [("a", [0]), ("a", [1, 2, 3, 4]), ("a", [5, 6])]


async def test_idle_workers_share_one_group(model: Model, pool: ThreadPoolExecutor) -> None:
    subject = batcher(model, pool, workers=2)
    assert await ask(subject, "a", 0, 1, 2) == [("a", 0), ("a", 1), ("a", 2)]
    assert sorted(items for _, items in model.batches) == [[0, 1], [2]]


async def test_groups_are_never_mixed_and_served_in_turn(model: Model, pool: ThreadPoolExecutor) -> None:
    subject = batcher(model, pool, max_batch=2, max_queue=20)
    model.gate.clear()
    tasks = [start(subject, "hot", 0)]
    await settle()
    tasks += [start(subject, "hot", item) for item in range(1, 7)]
    tasks += [start(subject, "cold", 8), start(subject, "mild", 9)]
    await settle()
    model.gate.set()
    await asyncio.gather(*tasks)
    assert [group for group, _ in model.batches] == ["hot", "hot", "cold", "mild", "hot", "hot"]


async def test_kinds_share_a_batch_and_take_turns_in_it(model: Model, pool: ThreadPoolExecutor) -> None:
    subject = batcher(model, pool, max_queue=20)
    model.gate.clear()
    tasks = [start(subject, "a", 0)]
    await settle()
    tasks += [start(subject, "a", item) for item in (1, 2, 3, 4, 5, 1001, 2001, 2002)]
    await settle()
    model.gate.set()
    await asyncio.gather(*tasks)
    # No batch has more than two kinds; the third is served as soon as there is a place, before the hot one goes on.
    assert [items for _, items in model.batches] == [[0], [1, 1001, 2, 3], [2001, 4, 2002, 5]]


async def test_who_leaves_from_among_other_kinds_is_dropped(model: Model, pool: ThreadPoolExecutor) -> None:
    subject = batcher(model, pool)
    model.gate.clear()
    tasks = [start(subject, "a", item) for item in (0, 1, 1001, 2001)]
    await settle()
    tasks[2].cancel()
    await settle()
    model.gate.set()
    await asyncio.wait(tasks)
    assert [items for _, items in model.batches] == [[0], [1, 2001]]


async def test_a_full_queue_refuses_and_says_when_to_come_back(model: Model, pool: ThreadPoolExecutor) -> None:
    subject = batcher(model, pool)
    await ask(subject, "a", 0)
    with subject.admit(8), pytest.raises(OverloadedError) as refused, subject.admit(1):
        pytest.fail("admitted")
    assert int(refused.value.headers["retry-after"]) >= 1
    assert "8 places, 8 are taken" in refused.value.message
    assert await ask(subject, "a", 1) == [("a", 1)]


async def test_a_ticket_grows_as_far_as_there_are_places(model: Model, pool: ThreadPoolExecutor) -> None:
    subject = batcher(model, pool)
    with subject.admit(5), subject.admit(1) as ticket:
        subject.top_up(ticket, 3)
        assert subject.full
        with pytest.raises(OverloadedError, match="8 places, 5 are taken and 4 are needed"):
            subject.top_up(ticket, 4)
        assert subject.queued == 8  # what it had, it keeps
        await subject.submit(ticket, [("a", item) for item in range(3)], Deadline.after(20))
        assert subject.queued == 5
    assert (subject.queued, subject.full) == (0, False)


async def test_a_place_is_free_again_once_its_item_runs(model: Model, pool: ThreadPoolExecutor) -> None:
    subject = batcher(model, pool, max_queue=1)
    model.gate.clear()
    running = start(subject, "a", 0)
    await settle()
    waiting = start(subject, "a", 1)
    await settle()
    with pytest.raises(OverloadedError):
        await ask(subject, "a", 2)
    model.gate.set()
    assert await asyncio.gather(running, waiting) == [[("a", 0)], [("a", 1)]]


async def test_an_expired_item_never_enters_a_batch(model: Model, pool: ThreadPoolExecutor) -> None:
    subject = batcher(model, pool)
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


async def test_the_deadline_also_ends_a_batch_that_runs(model: Model, pool: ThreadPoolExecutor) -> None:
    subject = batcher(model, pool)
    model.gate.clear()
    with pytest.raises(DeadlineExceededError):
        await ask(subject, "a", 0, seconds=0.01)
    model.gate.set()
    assert await ask(subject, "a", 1) == [("a", 1)]


async def test_who_left_is_dropped_before_batching(model: Model, pool: ThreadPoolExecutor) -> None:
    subject = batcher(model, pool)
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


async def test_a_failing_batch_fails_its_own_members_only(model: Model, pool: ThreadPoolExecutor) -> None:
    subject = batcher(model, pool)
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


async def test_a_missing_result_fails_the_batch(model: Model, pool: ThreadPoolExecutor) -> None:
    subject = batcher(model, pool)
    with pytest.raises(BatchError):
        await ask(subject, "a", -1)


async def test_draining_answers_what_was_admitted_and_admits_nothing(model: Model, pool: ThreadPoolExecutor) -> None:
    subject = batcher(model, pool)
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


async def test_times_are_in_order(model: Model, pool: ThreadPoolExecutor) -> None:
    subject = batcher(model, pool)
    with subject.admit(1) as ticket:
        (done,) = await subject.submit(ticket, [("a", 0)], Deadline.after(20))
    assert done.queued <= done.started <= done.finished
