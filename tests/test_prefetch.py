"""Batches come in order and complete, one ahead and no more, and what fails or is given up leaves nothing behind."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import torch

from fpet.data.prefetch import prefetched_batches


@pytest.mark.parametrize(("count", "sizes"), [(0, []), (1, [1]), (4, [4]), (5, [4, 1]), (9, [4, 4, 1])])
def test_batches_come_in_order(count: int, sizes: list[int]) -> None:
    batches = list(prefetched_batches(lambda index: index, count, 4))
    assert [len(batch) for batch in batches] == sizes
    assert [made for batch in batches for made in batch] == list(range(count))


def test_the_next_batch_is_made_while_one_is_used_and_no_other() -> None:
    made = [threading.Event() for _ in range(9)]
    batches = prefetched_batches(lambda index: made[index].set(), 9, 3)
    next(batches)
    assert all(event.wait(10) for event in made[:6])
    assert not any(event.is_set() for event in made[6:])
    batches.close()


def test_what_fails_is_raised_where_its_batch_would_be() -> None:
    def make(index: int) -> int:
        return 12 // (4 - index)

    batches = prefetched_batches(make, 6, 2)
    assert [next(batches), next(batches)] == [[3, 4], [6, 12]]
    with pytest.raises(ZeroDivisionError):
        next(batches)


@pytest.fixture
def threads() -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield 3
    torch.set_num_threads(before)


def test_torch_computes_in_one_thread_each_and_afterwards_as_before(threads: int) -> None:
    batches = prefetched_batches(lambda _: (torch.get_num_threads(), threading.current_thread()), 4, 2)
    inside = next(batches)
    later = [threads_of_a_new_thread()]
    batches.close()  # given up half-way
    assert {count for count, _ in inside} == {1}
    assert not any(thread.is_alive() for _, thread in inside)
    later.append(threads_of_a_new_thread())
    assert [torch.get_num_threads(), *later] == [threads] * 3


def threads_of_a_new_thread() -> int:
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    return found[0]
