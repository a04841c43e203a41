"""A batcher of a model that can be held up, and callers of it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from service.batcher import Batcher
from service.deadline import Deadline

WORKERS = 2


class Clock:
    """That of the running event loop, from now on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        loop = asyncio.get_running_loop()
        time, self.ahead = loop.time, 0.0
        monkeypatch.setattr(loop, "time", lambda: time() + self.ahead)


class Model:
    """Answers `(group, item)`; holds every batch until opened, and remembers what it ran.

    clock: jumps ahead by `seconds` with every batch.
    """

    def __init__(self) -> None:
        self.batches: list[tuple[str, list[int]]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.clock: Clock | None = None
        self.seconds = 0.0

    def run(self, group: str, items: Sequence[int]) -> list[tuple[str, int]]:
        gate = self.gate
        self.batches.append((group, list(items)))
        assert gate.wait(timeout=20)
        if self.clock is not None:
            self.clock.ahead += self.seconds
        if group == "broken":
            raise ZeroDivisionError("broken")
        return [(group, item) for item in items if item >= 0]

    async def ran(self, count: int) -> None:
        """Waits until so many batches began."""
        while len(self.batches) < count:
            await asyncio.sleep(0)


@contextmanager
def batching(**changes: int) -> Iterator[tuple[Batcher[str, int, tuple[str, int]], Model]]:
    """A batcher and its model; the kind of an item is how many thousands it has."""
    limits = {"workers": 1, "max_batch": 4, "max_kinds": 2, "max_queue": 8, **changes}
    model = Model()
    with ThreadPoolExecutor(WORKERS) as pool:
        yield Batcher(model.run, pool, kind=lambda item: item // 1000, **limits), model


async def ask(
    batcher: Batcher[str, int, tuple[str, int]], group: str, *items: int, seconds: float = 20
) -> list[object]:
    with batcher.admit(len(items)) as reservation:
        done = await batcher.submit(reservation, [(group, item) for item in items], Deadline.after(seconds))
    return [one.result for one in done]


def start(*args: object, **kwargs: float) -> asyncio.Task[list[object]]:
    return asyncio.create_task(ask(*args, **kwargs))  # type: ignore[arg-type]


async def settle() -> None:
    """Lets every task run until it waits for a thread."""
    for _ in range(10):
        await asyncio.sleep(0)
