"""Whoever waits gets a turn, however many others do."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from service.fair_queue import FairQueue


@pytest.mark.parametrize(("kinds", "max_kinds", "images"), [(20, 16, 4), (17, 16, 1), (22, 16, 2), (20, 4, 16)])
def test_kinds_that_always_wait_are_served_alike(kinds: int, max_kinds: int, images: int) -> None:
    queue: FairQueue[str, int, int] = FairQueue()
    numbers, kind_of, served = itertools.count(), {}, Counter[int]()

    def ask(kind: int) -> None:
        kind_of[number := next(numbers)] = kind
        queue.add("group", kind, number)

    for kind in list(range(kinds)) * (images + 1):
        ask(kind)
    for _ in range(50 * kinds):
        _, batch = queue.take(max_kinds, lambda _: images)
        assert len(batch) == images
        for number in batch:
            served[kind_of[number]] += 1
            ask(kind_of[number])
    counts = [served[kind] for kind in range(kinds)]
    assert max(counts) - min(counts) <= images
