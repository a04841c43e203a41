"""How many forwards run at once: as set, or what is measured to be fastest."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
from serving import Files, serving, small_settings

from service.model.parallelism import Parallelism, best, candidates, choose, measure_rates
from service.pools import Pools
from service.worker_threads import BACKGROUND, COMPUTING, DECODING, torch_threads

ONE, TWO = Parallelism(2, 1), Parallelism(1, 2)


@pytest.mark.parametrize(
    ("cores", "workers", "threads", "expected"),
    [
        (1, 0, 0, [(1, 1)]),
        (2, 0, 0, [(2, 1), (1, 2)]),
        (6, 0, 0, [(6, 1), (3, 2), (1, 4), (1, 6)]),
        (64, 0, 0, [(64, 1), (32, 2), (16, 4), (8, 8)]),
        (8, 2, 0, [(2, 1), (2, 2), (2, 4)]),
        (2, 4, 0, [(4, 1)]),
        (8, 0, 2, [(4, 2)]),
        (2, 0, 4, [(1, 4)]),
        (8, 3, 5, [(3, 5)]),
    ],
)
def test_what_is_open_is_tried_in_all_ways_that_use_the_cores(
    cores: int, workers: int, threads: int, expected: list[tuple[int, int]]
) -> None:
    assert candidates(cores, workers, threads) == expected


def test_more_threads_must_gain_what_cannot_be_chance() -> None:
    assert best({ONE: 10.0, TWO: 10.4}) == ONE
    assert best({ONE: 10.0, TWO: 10.6}) == TWO
    assert best({TWO: 10.4, ONE: 10.0}) == TWO
    assert best({ONE: 10.0, TWO: 11.0, Parallelism(4, 1): 12.0}) == (4, 1)


def test_each_way_runs_as_many_forwards_in_its_own_threads() -> None:
    ran: list[tuple[str, int]] = []
    at_once = threading.Barrier(2, timeout=30)

    def forward() -> None:
        threads = torch.get_num_threads()
        ran.append((threading.current_thread().name, threads))
        if threads == 1:
            at_once.wait()

    rates = measure_rates([ONE, TWO], forward)
    assert all(rate > 0 for rate in rates.values())
    assert sum(threads == 1 for _, threads in ran) == sum(threads == 2 for _, threads in ran) >= 2 * 2
    assert len({name for name, threads in ran if threads == 1}) == 2
    assert len({name for name, threads in ran if threads == 2}) == 1


def test_the_faster_way_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]  # of a clock that a busy machine does not advance
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])

    def forward() -> None:
        now[0] += 1.0 if torch.get_num_threads() == 1 else 0.01

    assert best(measure_rates([ONE, TWO], forward)) == TWO


def test_the_choice_is_logged_with_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="service.model.parallelism")
    chosen, rates = choose([ONE, TWO], lambda: None)
    assert chosen in rates.keys() == {ONE, TWO}
    assert f"{chosen}, of these by forwards a second: 2 x 1: " in caplog.text
    assert choose([TWO], lambda: pytest.fail("there is nothing to measure")) == (TWO, {})
    assert "1 x 2, the only choice" in caplog.text


def test_threads_of_a_pool_compute_in_as_many_as_told() -> None:
    with torch_threads("a", 1, 1) as one, torch_threads("b", 1, 3) as three:
        assert one.submit(torch.get_num_threads).result() == 1
        assert three.submit(torch.get_num_threads).result() == 3


on_linux = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere threads have no priority of their own")


@on_linux
def test_all_that_compute_yield_to_the_thread_that_answers() -> None:
    """Those that torch starts for them too, and those that they start themselves."""

    def threads() -> set[int]:
        return {int(thread.name) for thread in Path("/proc/self/task").iterdir()}

    own, before = os.getpriority(os.PRIO_PROCESS, os.getpid()), threads()
    with torch_threads("outer", 1, 2) as outer, torch_threads("inner", 1, 1) as inner:
        assert outer.submit(lambda: torch.ones(2**20).sum()).result() == 2**20
        outer.submit(lambda: inner.submit(int)).result().result()
        started = threads() - before
        assert len(started) == 3
        assert {os.getpriority(os.PRIO_PROCESS, thread) for thread in started} == {min(own + COMPUTING, 19)}
    assert os.getpriority(os.PRIO_PROCESS, os.getpid()) == own


@on_linux
@pytest.mark.parametrize(
    ("on_cpu", "expected"),
    [(True, {"decode": DECODING, "forwards": COMPUTING, "calibrator": BACKGROUND}), (False, {"forwards": 0})],
)
def test_decoding_precedes_forwards_on_a_cpu_only(small_files: Files, on_cpu: bool, expected: dict[str, int]) -> None:
    """A GPU is given its work before more images are decoded for it."""
    assert 0 < DECODING < COMPUTING < BACKGROUND
    own = os.getpriority(os.PRIO_PROCESS, os.getpid())
    pools = Pools(small_settings(small_files), ONE, on_cpu=on_cpu)
    try:
        for name, niceness in expected.items():
            found = getattr(pools, name).submit(lambda: os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
            assert found.result() == min(own + niceness, 19)
    finally:
        pools.end(time.monotonic() + 30)


def test_the_service_tells_what_it_runs_with(small_files: Files) -> None:
    with serving(small_settings(small_files, workers=2, threads=3)) as service:
        assert (service.metric("parallelism", of="workers"), service.metric("parallelism", of="threads")) == (2, 3)
        assert "fpet_trial_forwards_per_second{" not in service.client.get("/metrics").text
