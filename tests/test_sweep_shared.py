"""Several sweeps with one plan and one table: each run is done once, whoever is killed."""

from __future__ import annotations

import dataclasses
import re
import subprocess
from pathlib import Path
from typing import IO

import pytest
from plans import command, left, started, without_times
from small import small_backbone

from fpet.cli import main
from fpet.locks import sole_writer
from fpet.sweeps.jobs import jobs
from fpet.sweeps.plan import load_plan
from fpet.sweeps.results import Row, add_row, read_rows
from fpet.sweeps.sweep import sweep

pytestmark = pytest.mark.usefixtures("one_thread")

HEAD = """data = ["digits"]
seeds = [0, 1]
recipe = { epochs = 2, warmup_epochs = 0, lr = 0.01, batch_size = 100 }
"""
METHOD = '[[method]]\nname = "{0}"\nadapter = "{0}"\nreducer = "none"\n'
ADAPTERS = ("none", "lora", "ssf")
RUNS = 2 * len(ADAPTERS)
DIVERGES = '[[method]]\nname = "Too fast"\nrecipe = { lr = 1e30 }\nreducer = "none"\n'


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    (tmp_path / "plan.toml").write_text(HEAD + "".join(map(METHOD.format, ADAPTERS)))
    return tmp_path / "plan.toml"


def told(process: subprocess.Popen[str]) -> list[int]:
    """How many runs it did, failed in and left."""
    out, err = process.communicate()
    assert process.returncode == 0, err
    found = re.search(r"(\d+) done, (\d+) failed, (\d+) were there$", out.strip())
    assert found, out
    return [int(number) for number in found.groups()]


def line(stream: IO[str] | None) -> str:
    assert stream is not None
    return stream.readline()


def test_sweeps_of_one_plan_share_its_runs_also_when_one_is_killed(plan: Path, backbone_file: Path) -> None:
    whole, shared = plan.with_name("whole.csv"), plan.with_name("shared.csv")
    assert main(command(plan, whole, backbone_file)) == 0
    sweeps = [started(command(plan, shared, backbone_file)) for _ in range(3)]
    line(sweeps[0].stdout)  # its heading: it has begun
    line(sweeps[0].stdout)
    sweeps[0].kill()
    sweeps[0].communicate()
    counts = [told(process) for process in sweeps[1:]]
    assert all(sum(count) == RUNS for count in counts)
    assert sum(done for done, _, _ in counts) <= RUNS
    assert without_times(shared) == without_times(whole)
    # It may have been killed while it looked at a run that was done: who looks at that again removes the lock.
    assert main(command(plan, shared, backbone_file)) == 0
    assert left(plan.parent) == ["plan.toml", "shared.csv", "whole.csv"]


def test_a_run_that_another_is_at_is_waited_for_when_nothing_else_is_left(plan: Path, backbone_file: Path) -> None:
    table = plan.with_name("table.csv")
    held, *_ = jobs(load_plan(plan), small_backbone(), None)
    with sole_writer(table.with_suffix(".runs") / held.key):
        process = started(command(plan, table, backbone_file))
        assert process.stderr is not None
        assert any(said == "fpet: waiting for 1 run that another sweep is at\n" for said in process.stderr)
        assert len(read_rows(table)) == RUNS - 1
    assert told(process) == [RUNS, 0, 0]
    assert not table.with_suffix(".runs").exists()


def test_nobody_waits_for_who_only_looks_at_a_run_that_is_done(plan: Path, backbone_file: Path) -> None:
    table = plan.with_name("table.csv")
    assert main(command(plan, table, backbone_file)) == 0
    looked_at, *_ = jobs(load_plan(plan), small_backbone(), None)
    with sole_writer(table.with_suffix(".runs") / looked_at.key):
        process = started(command(plan, table, backbone_file))
        assert process.stderr is not None
        assert not any("waiting" in said for said in process.stderr)  # to its end, while the run is held
    assert told(process) == [0, 0, RUNS]


def test_a_run_that_another_did_meanwhile_is_not_done_again(plan: Path, backbone_file: Path) -> None:
    table = plan.with_name("table.csv")
    ours = sweep(load_plan(plan), small_backbone(), table, None, None, on_wait=print)
    assert isinstance(next(ours)[1], Row)
    assert main(command(plan, table, backbone_file)) == 0
    before = table.read_bytes()
    assert [row for _, row in ours] == [None] * (RUNS - 1)
    assert table.read_bytes() == before


def test_a_run_in_which_another_failed_meanwhile_is_left_to_it(plan: Path, backbone_file: Path) -> None:
    plan.write_text(HEAD + METHOD.format("none") + DIVERGES)
    table = plan.with_name("table.csv")
    ours = sweep(load_plan(plan), small_backbone(), table, None, None, on_wait=print)
    next(ours)
    assert main(command(plan, table, backbone_file)) == 1
    failed = [dataclasses.replace(row, error="as another saw it") for row in read_rows(table) if row.error]
    for row in failed:
        add_row(table, row)
    assert [row for _, row in ours] == [None, *failed]
    again = sweep(load_plan(plan), small_backbone(), table, None, None, on_wait=print)
    assert ["diverged" in row.error for _, row in again if row] == [True, True]
