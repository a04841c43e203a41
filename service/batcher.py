"""A batch is what waits when a worker is free: no timer, one bounded queue, groups served in turn.

    with batcher.admit(len(images)) as ticket:  # refuses before any work is done
        items = await decode(images)
        done = await batcher.submit(ticket, group, items, deadline)

All state belongs to the event loop; only `run` is called in other threads.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Generic, TypeVar

from service.deadline import Deadline
from service.errors import NotReadyError, OverloadedError

Group = TypeVar("Group", bound=Hashable)
Item = TypeVar("Item")
Result = TypeVar("Result")

_SMOOTHING = 0.2  # weight of the newest batch in the running mean of the time an item takes


class BatchError(Exception):
    """The batch that an item was in failed; the cause says why."""


@dataclass(eq=False)
class Ticket:
    """Places in the queue; one is given back whenever an item enters a batch, the rest when the request ends."""

    places: int


@dataclass(frozen=True)
class Done(Generic[Result]):
    """An item's result, and when it was queued and its batch started and finished, by the event loop's clock."""

    result: Result
    queued: float
    started: float
    finished: float


@dataclass(eq=False)
class _Waiting(Generic[Item, Result]):
    item: Item
    ticket: Ticket
    deadline: Deadline
    queued: float
    future: asyncio.Future[Done[Result]]


class Batcher(Generic[Group, Item, Result]):
    """Collects the items of concurrent callers into batches of one group each.

    run: called in a thread of `pool` with a group and its items, returns one result an item, in their order.
    workers: how many batches run at once; max_batch: items in a batch; max_queue: items admitted and in no batch yet.
    """

    def __init__(
        self,
        run: Callable[[Group, Sequence[Item]], Sequence[Result]],
        pool: Executor,
        *,
        workers: int,
        max_batch: int,
        max_queue: int,
    ) -> None:
        self._run = run
        self._pool = pool
        self._workers = self._free = workers
        self._max_batch = max_batch
        self._max_queue = max_queue
        # Groups in the order of their turns; in each an ordered set, so that an item can leave from anywhere.
        self._waiting: dict[Group, dict[_Waiting[Item, Result], None]] = {}
        self._batches: set[asyncio.Task[None]] = set()
        self._tickets: set[Ticket] = set()
        self._no_tickets = asyncio.Event()
        self._draining = False
        self._seconds_per_item = 0.0

    @property
    def queued(self) -> int:
        """Items admitted and in no batch yet."""
        return sum(ticket.places for ticket in self._tickets)

    @contextmanager
    def admit(self, places: int) -> Iterator[Ticket]:
        """Reserves places in the queue for as long as the `with` lasts.

        Raises:
            OverloadedError: if there are too few, with an estimate of when they will be free.
            NotReadyError: once `drain` was called.
        """
        if self._draining:
            raise NotReadyError("the service is shutting down")
        queued = self.queued
        if queued + places > self._max_queue:
            raise OverloadedError(
                f"the queue has {self._max_queue} places, {queued} are taken and {places} are needed",
                retry_after=queued * self._seconds_per_item / self._workers,
            )
        ticket = Ticket(places)
        self._tickets.add(ticket)
        try:
            yield ticket
        finally:
            self._tickets.remove(ticket)
            if not self._tickets:
                self._no_tickets.set()

    async def submit(
        self, ticket: Ticket, group: Group, items: Sequence[Item], deadline: Deadline
    ) -> list[Done[Result]]:
        """Waits for the results of the items, which may run in several batches.

        If the caller is cancelled, its items leave the queue.

        Raises:
            DeadlineExceededError: at the deadline; an item that still waits then never enters a batch.
            BatchError: if `run` raised for one of the items.
        """
        loop = asyncio.get_running_loop()
        entries = [_Waiting(item, ticket, deadline, loop.time(), loop.create_future()) for item in items]
        self._waiting.setdefault(group, {}).update(dict.fromkeys(entries))
        self._dispatch()
        try:
            async with deadline.limit():
                done: list[Done[Result]] = await asyncio.gather(*(entry.future for entry in entries))
                return done
        finally:
            self._withdraw(group, entries)

    async def drain(self) -> None:
        """Admits nothing more and returns when every ticket has been given back."""
        self._draining = True
        while self._tickets:
            self._no_tickets.clear()
            await self._no_tickets.wait()

    def _withdraw(self, group: Group, entries: Sequence[_Waiting[Item, Result]]) -> None:
        queue = self._waiting.get(group, {})
        for entry in entries:
            entry.future.cancel()  # does nothing to one that is done
            queue.pop(entry, None)
        if not queue:
            self._waiting.pop(group, None)

    def _dispatch(self) -> None:
        while self._free and self._waiting:
            group, batch = self._next_batch()
            if batch:
                self._free -= 1
                task = asyncio.create_task(self._execute(group, batch))
                self._batches.add(task)
                task.add_done_callback(self._batches.discard)

    def _next_batch(self) -> tuple[Group, list[_Waiting[Item, Result]]]:
        """Takes a share of the group whose turn it is: if more workers are free than groups wait, they divide it."""
        group = next(iter(self._waiting))
        queue = self._waiting.pop(group)
        for entry in list(queue):
            if entry.deadline.passed() and not entry.future.done():
                entry.future.set_exception(entry.deadline.error())
            if entry.future.done():
                del queue[entry]
        workers = max(1, self._free - len(self._waiting))
        batch = list(islice(queue, min(self._max_batch, math.ceil(len(queue) / workers))))
        for entry in batch:
            entry.ticket.places -= 1
            del queue[entry]
        if queue:
            self._waiting[group] = queue  # behind all others
        return group, batch

    async def _execute(self, group: Group, batch: Sequence[_Waiting[Item, Result]]) -> None:
        loop = asyncio.get_running_loop()
        started = loop.time()
        items = [entry.item for entry in batch]
        try:
            results = await loop.run_in_executor(self._pool, self._run, group, items)
            finished = loop.time()
            self._learn((finished - started) / len(batch))
            for entry, result in zip(batch, results, strict=True):
                if not entry.future.done():
                    entry.future.set_result(Done(result, entry.queued, started, finished))
        except Exception as error:
            for entry in batch:
                if not entry.future.done():
                    failure = BatchError(f"a batch of {len(batch)} failed")
                    failure.__cause__ = error
                    entry.future.set_exception(failure)
        finally:
            self._free += 1
            self._dispatch()

    def _learn(self, seconds_per_item: float) -> None:
        known = self._seconds_per_item or seconds_per_item
        self._seconds_per_item = known + _SMOOTHING * (seconds_per_item - known)
