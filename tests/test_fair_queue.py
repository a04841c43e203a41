"""Whoever waits gets a turn, however many others do."""

from __future__ import annotations

import itertools
import weakref
from collections import Counter
from collections.abc import Callable, Sequence

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
        _, batch, _ = queue.take(max_kinds, images)
        assert len(batch) == images
        for number in batch:
            served[kind_of[number]] += 1
            ask(kind_of[number])
    counts = [served[kind] for kind in range(kinds)]
    assert max(counts) - min(counts) <= images


class Load:
    """Kinds of which each always has so many entries waiting in each of its groups; groups: (group, kind, entries)."""

    def __init__(self, groups: Sequence[tuple[str, int, int]], batch_cost: float = 0.0) -> None:
        self.queue: FairQueue[str, int, tuple[str, int, int]] = FairQueue()
        self.numbers = itertools.count()
        self.batch_cost = batch_cost
        self.served = Counter[int]()
        self.order: list[str] = []
        for group, kind, entries in groups:
            for _ in range(entries):
                self.ask(group, kind)

    def ask(self, group: str, kind: int) -> None:
        self.queue.add(group, kind, (group, kind, next(self.numbers)))

    def serve(self, batches: int) -> None:
        """Takes batches of up to 16, which cost as much as they have entries, on top of what each costs."""
        for _ in range(batches):
            group, batch, charge = self.queue.take(16, 16)
            self.order.append(group)
            for _, kind, _ in batch:
                self.served[kind] += 1
                self.ask(group, kind)
            charge(len(batch) + self.batch_cost)


def test_a_kind_with_a_group_to_itself_has_no_more_than_others() -> None:
    load = Load([*(("family", kind, 2) for kind in range(20)), *((f"own {kind}", kind, 32) for kind in range(20, 24))])
    load.serve(24 * 20)
    each = 16 * 20
    assert all(abs(count - each) <= 2 * 16 for count in load.served.values())


def test_a_kind_with_several_groups_has_no_more_than_others() -> None:
    load = Load([*((f"way {way}", 0, 16) for way in range(4)), ("own", 1, 16)])
    load.serve(200)
    assert abs(load.served[0] - load.served[1]) <= 4 * 16


def test_small_batches_hold_up_nobody_where_they_take_as_long_as_large_ones() -> None:
    load = Load([("seldom", 0, 1), ("hot", 1, 16)], batch_cost=1000.0)
    load.serve(100)
    assert Counter(load.order) == {"seldom": 50, "hot": 50}


@pytest.mark.parametrize("batches", range(9, 15))
def test_who_comes_seldom_waits_for_one_turn_of_each_other_at_most(batches: int) -> None:
    load = Load([("hot", 0, 64), ("warm", 1, 64)])
    load.serve(batches)
    load.ask("seldom", 2)
    load.serve(3)
    assert "seldom" in load.order[-3:]


def test_who_comes_late_is_given_nothing_for_the_time_before() -> None:
    load = Load([("first", 0, 32), ("second", 1, 32)])
    load.serve(100)
    for _ in range(32):
        load.ask("late", 2)
    load.serve(30)
    assert Counter(load.order[-30:]) == {"first": 10, "second": 10, "late": 10}


def test_who_asks_again_once_it_is_answered_has_no_more_than_others() -> None:
    """It leaves the queue with each of its entries, but what it had is held against it."""
    queue: FairQueue[str, int, int] = FairQueue()
    numbers, had, costs = itertools.count(), Counter[str](), {"long": 8, "short": 1}
    for group in ("long", "short", "short"):
        queue.add(group, len(group), next(numbers))
    for _ in range(900):
        group, _, charge = queue.take(1, 1)
        charge(costs[group])
        had[group] += costs[group]
        queue.add(group, len(group), next(numbers))
    assert had["long"] == pytest.approx(had["short"], rel=0.05)


def test_who_asked_again_before_it_was_charged_gets_no_turns_back() -> None:
    queue: FairQueue[str, int, int] = FairQueue()
    numbers = itertools.count()
    queue.add("a", 0, next(numbers))
    _, _, charge_late = queue.take(1, 1)
    for _ in range(100):
        queue.add("b", 1, next(numbers))
    order = []
    for turn in range(90):
        if turn == 50:
            queue.add("a", 0, next(numbers))
            charge_late(1.0)
        group, _, charge = queue.take(1, 1)
        charge(1.0)
        order.append(group)
        if group == "a":
            queue.add("a", 0, next(numbers))
    assert order[:50] == ["b"] * 50
    assert abs(order[50:].count("a") - 20) <= 1


def test_those_that_stay_keep_their_order_when_another_leaves() -> None:
    queue: FairQueue[str, int, int] = FairQueue()
    for kind, number in ((0, 0), (0, 1), (0, 2), (1, 3)):
        queue.add("group", kind, number)
    queue.discard("group", 0, 1)
    assert (len(queue), queue.head()) == (1, 3)  # a group, of two kinds
    assert queue.first() == [("group", 0, 0), ("group", 0, 2), ("group", 1, 3)]
    _, batch, _ = queue.take(16, 16)
    assert batch == [0, 3, 2]


class Group:
    """One that can be forgotten."""


def test_a_group_whose_entries_all_left_is_forgotten() -> None:
    queue: FairQueue[object, int, int] = FairQueue()
    first = Group()
    known = weakref.ref(first)
    queue.add("other", 1, 0)
    for number in range(2):
        queue.add(first, 0, number)
    for number in range(2):
        queue.discard(first, 0, number)
    queue.discard(first, 0, 0)  # once more does nothing
    assert len(queue) == 1
    del first
    assert known() is None


def test_what_was_taken_is_not_held_against_anybody_once_nobody_waits() -> None:
    queue: FairQueue[Group, int, int] = FairQueue()
    first = Group()
    known = weakref.ref(first)
    queue.add(first, 0, 0)
    _, _, charge = queue.take(16, 16)
    charge(16.0)
    del first, charge, _
    assert known() is None


def test_a_group_that_left_is_forgotten_while_others_go_on() -> None:
    queue: FairQueue[object, int, int] = FairQueue()
    first = Group()
    known = weakref.ref(first)
    queue.add(first, 0, 0)
    _, _, charge = queue.take(16, 16)
    for number in range(8):
        queue.add("other", 1, number)
    charge(2.0)
    del first
    for _ in range(4):
        _, _, charge = queue.take(16, 1)
        charge(1.0)
    assert known() is None


def test_what_runs_beside_others_is_charged_once() -> None:
    """Of two workers one can have the long batches of A, each asked for after the other, beside short ones of B."""
    queue: FairQueue[str, int, int] = FairQueue()
    numbers, had, costs = itertools.count(), Counter[str](), {"a": 8, "b": 1}
    running: list[tuple[float, int, str, Callable[[float], None]]] = []
    now = 0.0
    for group in "abbbbbbbb":
        queue.add(group, "ab".index(group), next(numbers))
    while now < 1000:
        while len(running) < 2 and len(queue):
            group, (number,), charge = queue.take(1, 1)
            running.append((now + costs[group], number, group, charge))
        running.sort(key=lambda one: one[:2])
        now, _, group, charge = running.pop(0)
        charge(costs[group])
        had[group] += costs[group]
        queue.add(group, "ab".index(group), next(numbers))
    assert had["a"] == pytest.approx(had["b"], rel=0.05)


def test_what_was_held_against_a_group_is_forgotten_once_nobody_waits() -> None:
    queue: FairQueue[object, int, int] = FairQueue()
    first = Group()
    known = weakref.ref(first)
    queue.add(first, 0, 0)
    _, _, charge_first = queue.take(16, 16)
    queue.add("other", 1, 1)
    charge_first(16.0)  # while another waits
    _, _, charge = queue.take(16, 16)
    charge(1.0)  # while nobody does
    del first, charge_first, charge, _
    assert known() is None
