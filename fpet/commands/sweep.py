"""`fpet sweep`: a table of methods x data x seeds."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from fpet.backbone import Backbone
from fpet.commands import options
from fpet.commands.table import table
from fpet.commands.tell import tell
from fpet.data import Dataset
from fpet.errors import UnsupportedError
from fpet.hardware.allocator import keep_freed_memory
from fpet.hardware.precision import slowness
from fpet.sweeps.jobs import Job, check_plan, jobs
from fpet.sweeps.plan import Plan, load_plan
from fpet.sweeps.results import Row, read_rows
from fpet.sweeps.sweep import sweep
from fpet.training.parallel import refuse_group
from fpet.words import count

_DESCRIPTION = """Trains and tests every method of a plan on every data set with every seed, and writes one CSV row a
run. Runs that the table has are not repeated, a killed run goes on, and a run that fails leaves a row with its error
and is tried again next time. The plan is a TOML file, whose folders are relative to the working directory; names and
folders of data that do not exist, and methods that cannot be trained, are refused before any run. Several sweeps of one
plan with one output share the runs, for example each on its own core or GPU. The exit code is 1 if a run failed."""
_COLUMNS = ("data", "method", "seed", "adapter", "reducer", "epochs", "state")
_FAILED = 1


def add_command(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `sweep`."""
    parser = subparsers.add_parser("sweep", description=_DESCRIPTION)
    parser.set_defaults(run=run)
    parser.add_argument("plan", type=Path, metavar="PLAN", help="TOML file: data, seeds, [recipe] and [[method]]")
    parser.add_argument(
        "--output", type=Path, required=True, metavar="FILE", help="table that the rows are added to, *.csv"
    )
    parser.add_argument("--keep", type=Path, metavar="DIR", help="folder to keep the task files in (default: none)")
    parser.add_argument("--list", action="store_true", help="print the runs and whether they are done, and stop")
    options.add_cache(parser)
    options.add_backbone(parser)


def run(arguments: argparse.Namespace) -> int:
    """Lists, or trains, tests and writes."""
    refuse_group("a sweep")
    # The folder of the runs has the table's name without the suffix.
    options.require_suffix(arguments.output, ".csv", "a sweep's table has a name that")
    plan, backbone = load_plan(arguments.plan), options.backbone(arguments)
    try:
        check_plan(plan, backbone)
    except UnsupportedError as error:
        raise UnsupportedError(f"{arguments.plan}: {error}") from error
    if arguments.list:
        print(_listed(plan, backbone, arguments))
        return 0
    device = backbone.device
    for method in plan.methods:
        if method.recipe.caution:
            tell(f"{method.name}: {method.recipe.caution}; give fewer warmup_epochs")
    for slow in {slowness(method.recipe.precision, device) for method in plan.methods} - {""}:
        tell(slow)
    return _sweep(plan, backbone, arguments)


def _sweep(plan: Plan, backbone: Backbone, arguments: argparse.Namespace) -> int:
    cells = len(plan.data) * len(plan.methods) * len(plan.seeds)
    print(f"{arguments.output}: {count(cells, 'run')}", flush=True)
    keep_freed_memory()
    done = failed = 0
    for job, row in sweep(plan, backbone, arguments.output, arguments.keep, arguments.cache, on_wait=_waits):
        if row is not None:
            print(_line(job, row), flush=True)
            done, failed = done + (not row.error), failed + bool(row.error)
        elif arguments.keep is not None and not job.kept(arguments.keep).exists():
            tell(
                f"{job.data}, {job.method.name}, seed {job.method.recipe.seed}: done before, and its file is not "
                f"in {arguments.keep}; delete its row to train it again"
            )
        del job  # it has the pictures, which would stay in memory beside those of the next data set
    print(f"{arguments.output}: {done} done, {failed} failed, {cells - done - failed} were there")
    return _FAILED if failed else 0


def _waits(others: int) -> None:
    tell(f"waiting for {count(others, 'run')} that another sweep is at")


def _listed(plan: Plan, backbone: Backbone, arguments: argparse.Namespace) -> str:
    done = {row.run for row in read_rows(arguments.output) if not row.error}
    rows: list[dict[str, Any]] = [
        {
            "data": job.data,
            "method": job.method.name,
            "seed": job.method.recipe.seed,
            "adapter": job.method.adapter.kind,
            "reducer": job.method.reducer.kind,
            "epochs": job.method.recipe.epochs,
            "state": "done" if job.key in done else "to do",
        }
        for job in jobs(plan, backbone, arguments.cache)
    ]
    return table(rows, _COLUMNS)


def _line(job: Job, row: Row) -> str:
    name = f"{row.data}, {row.method}, seed {row.seed}:"
    if row.error:
        return f"{name} failed: {row.error}"
    skipped = len(job.dataset.skipped) if isinstance(job.dataset, Dataset) else 0
    return (
        f"{name} test accuracy {row.test_accuracy:.4f} ({row.test_accuracy_unreduced:.4f} without token reduction), "
        f"{row.training_seconds:.0f} s{f', pictures left out: {skipped}' if skipped else ''}"
    )
