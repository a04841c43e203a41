"""Dynamic batching without a timer: a free worker takes a batch of what waits, in fair order, from a bounded queue.

    with batcher.admit(1) as reservation:  # refuses before any work is done
        images = await read()
        batcher.top_up(reservation, len(images))
        items = await decode(images)
        done = await batcher.submit(reservation, [(group, item) for item in items], deadline)

All state belongs to the event loop; only `run` is called in other threads.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

from service.deadline import Deadline
from service.errors import NotReadyError, OverloadedError
from service.fair_queue import FairQueue
from service.queue_slots import QueueSlots, Reservation

Group = TypeVar("Group", bound=Hashable)
Item = TypeVar("Item")
Result = TypeVar("Result")

_SMOOTHING = 0.2  # weight of the newest batch in the running mean of the time an item takes


class BatchError(Exception):
    """The batch that an item was in failed; the cause says why."""


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
    reservation: Reservation
    deadline: Deadline
    queued: float
    future: asyncio.Future[Done[Result]]


class Batcher(Generic[Group, Item, Result]):
    """Collects the items of concurrent callers into batches of one group each.

    run: called in a thread of `pool` with a group and its items, returns one result an item, in their order.
    kind: of an item; kinds share the time of the workers, so that none waits behind all items of another kind.
    workers: how many batches run at once; max_batch: items in a batch; max_kinds: kinds in a batch; max_queue: items
    admitted and in no batch yet; a kind with none among them may exceed it by up to `max_batch`.
    """

    def __init__(
        self,
        run: Callable[[Group, Sequence[Item]], Sequence[Result]],
        pool: Executor,
        *,
        kind: Callable[[Item], Hashable],
        workers: int,
        max_batch: int,
        max_kinds: int,
        max_queue: int,
    ) -> None:
        self._run = run
        self._pool = pool
        self._workers = self._free = workers
        self._kind = kind
        self._max_batch = max_batch
        self._max_kinds = max_kinds
        self._slots = QueueSlots(max_queue, max_batch)
        self._waiting: FairQueue[Group, Hashable, _Waiting[Item, Result]] = FairQueue()
        self._batches: dict[asyncio.Task[None], float] = {}  # since when
        self._running = 0
        self._reservations: set[Reservation] = set()
        self._no_reservations = asyncio.Event()
        self._draining = False
        self._seconds_per_item = 0.0

    @property
    def queued(self) -> int:
        """Items admitted and in no batch yet."""
        return self._slots.taken

    @property
    def longest(self) -> float:
        """Seconds since the oldest of the batches that are under way began; 0 without one. Any thread may ask."""
        now = time.monotonic()
        return max([now - began for began in list(self._batches.values())], default=0.0)

    @property
    def full(self) -> bool:
        """Whether no slot is left, but for kinds that hold none."""
        return self._slots.taken >= self._slots.number

    @contextmanager
    def admit(self, slots: int, kinds: Sequence[Hashable] = ()) -> Iterator[Reservation]:
        """Reserves slots in the queue for as long as the `with` lasts. kinds: of the items that will take them.

        Raises:
            OverloadedError: if there are too few, with an estimate of when they will be free.
            NotReadyError: once `drain` was called.
        """
        if self._draining:
            raise NotReadyError("the service is shutting down")
        reservation = Reservation(0, frozenset(kinds))
        self.top_up(reservation, slots)
        self._reservations.add(reservation)
        try:
            yield reservation
        finally:
            self._slots.resize(reservation, 0)
            self._reservations.remove(reservation)
            if not self._reservations:
                self._no_reservations.set()

    def top_up(self, reservation: Reservation, slots: int) -> None:
        """Sets the number of slots of a reservation, none of which has been used.

        Raises:
            OverloadedError: if there are too few, with an estimate of when they will be free.
        """
        others, limit = self._slots.taken - reservation.slots, self._slots.limit(reservation)
        if others + slots > limit:
            raise OverloadedError(
                f"the queue has {limit} places, {others} are taken and {slots} are needed",
                retry_after=others * self._seconds_per_item / self._workers,
            )
        self._slots.resize(reservation, slots)

    async def submit(
        self, reservation: Reservation, items: Sequence[tuple[Group, Item]], deadline: Deadline
    ) -> list[Done[Result]]:
        """Waits for the results of the items, each in its group, which may run in several batches.

        If the caller is cancelled, its items leave the queue.

        Raises:
            DeadlineExceededError: at the deadline; an item that still waits then never enters a batch.
            BatchError: if `run` raised for one of the items.
        """
        loop = asyncio.get_running_loop()
        entries = [
            (group, self._kind(item), _Waiting(item, reservation, deadline, loop.time(), loop.create_future()))
            for group, item in items
        ]
        for entry in entries:
            self._waiting.add(*entry)
        self._dispatch()
        try:
            async with deadline.limit():
                futures = [entry.future for _, _, entry in entries]
                if len(futures) == 1:  # as most requests have; `gather` would be most of the cost
                    return [await futures[0]]
                done: list[Done[Result]] = await asyncio.gather(*futures)
                return done
        finally:
            for group, kind, waiting in entries:
                waiting.future.cancel()  # does nothing to one that is done
                self._waiting.discard(group, kind, waiting)

    async def drain(self) -> None:
        """Admits nothing more and returns when every reservation has been given back."""
        self._draining = True
        while self._reservations:
            self._no_reservations.clear()
            await self._no_reservations.wait()

    def _dispatch(self) -> None:
        while self._free and self._drop_expired():
            group, batch, charge = self._waiting.take(self._max_kinds, self._batch_size())
            for entry in batch:
                self._slots.resize(entry.reservation, entry.reservation.slots - 1)
            self._running += len(batch)
            self._free -= 1
            task = asyncio.create_task(self._execute(group, batch, charge))
            self._batches[task] = time.monotonic()
            task.add_done_callback(self._batches.pop)

    def _batch_size(self) -> int:
        """How many items the next batch takes."""
        waiting = self._waiting.head()
        if others := len(self._waiting) - 1:  # if more workers are free than groups wait, they divide it
            share = waiting / max(1, self._free - others)
        else:  # only one group waits: split waiting and running items evenly, so no worker later finds an empty queue
            share = (waiting + self._running) / self._workers
        return min(self._max_batch, math.ceil(share))

    def _drop_expired(self) -> bool:
        """Fails the items past their deadlines in the group that is next; returns whether anything still waits."""
        while self._waiting:
            expired = [one for one in self._waiting.first() if one[2].deadline.passed() or one[2].future.done()]
            for group, kind, entry in expired:
                if not entry.future.done():
                    entry.future.set_exception(entry.deadline.error())
                self._waiting.discard(group, kind, entry)
            if not expired:
                return True
        return False

    async def _execute(
        self, group: Group, batch: Sequence[_Waiting[Item, Result]], charge: Callable[[float], None]
    ) -> None:
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
            self._running -= len(batch)
            charge(loop.time() - started)
            self._dispatch()

    def _learn(self, seconds_per_item: float) -> None:
        known = self._seconds_per_item or seconds_per_item
        self._seconds_per_item = known + _SMOOTHING * (seconds_per_item - known)
