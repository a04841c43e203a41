"""Trains and tests a plan of runs, one row of a table each."""

from __future__ import annotations

import dataclasses
import json
import shutil
import statistics
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from fpet import __version__
from fpet.adapters import ADAPTERS
from fpet.backbone import Backbone
from fpet.data import Dataset
from fpet.errors import BusyError, DataError, FpetError, TaskError, UnsupportedError, UnwritableError
from fpet.evaluation import Evaluation
from fpet.files import make_folder
from fpet.flops import macs
from fpet.hardware.devices import device_name
from fpet.hardware.room import lacked_memory
from fpet.locks import sole_writer
from fpet.sweeps.jobs import KEY, Job, jobs, new_task
from fpet.sweeps.plan import Plan
from fpet.sweeps.results import Row, add_row, drop_failed, read_rows
from fpet.task import save_task
from fpet.training.fit import Fitted, evaluate_fitted, fit
from fpet.training.run import Trained
from fpet.vit import count_parameters
from fpet.words import reason

_GIGA = 1e9


def sweep(
    plan: Plan,
    backbone: Backbone,
    output: Path,
    keep: Path | None,
    cache: Path | None,
    *,
    on_wait: Callable[[int], object],
) -> Iterator[tuple[Job, Row | None]]:
    """Does the runs that have no row in `output` yet, or the row of a failure, and adds the row of each.

    Yields every run of the plan, with its row if it was not done before. A run that was killed goes on from its
    checkpoint, in a folder beside `output`, when this is called again. A failed run gets a row with its error, which is
    removed once a run of the same data, method and seed succeeds. keep: folder for task files, else deleted.

    Several processes may do one plan at a time: each skips the runs that others are doing, and goes on with them if
    those are killed. on_wait: called with the number of runs that others are still doing when nothing else is left.

    Raises:
        TaskError: if `output` is no sweep's table, or a file cannot be written: what was trained is kept for another
            call.
    """
    shared = _Shared(output, backbone, keep)
    others: dict[str, str] = {}  # what is left to other processes, with its data
    for job in jobs(plan, backbone, cache):
        try:
            yield job, shared.settle(job)
        except BusyError:
            if shared.has(job):  # another only looks whether it is done
                yield job, None
            else:
                others[job.key] = job.data
    if others:
        on_wait(len(others))
        left = dataclasses.replace(plan, data=tuple(data for data in plan.data if data.label in others.values()))
        for job in jobs(left, backbone, cache):
            if job.key in others:
                yield job, shared.settle(job, wait=True)
    with suppress(OSError):  # what is kept there is for another call, or for another process
        shared.work.rmdir()


class _Shared:
    """A table that other sweeps may write too, and the folder of the unfinished runs."""

    def __init__(self, output: Path, backbone: Backbone, keep: Path | None) -> None:
        if keep is not None:
            make_folder(keep, TaskError)
        self.output, self.backbone, self.keep = output, backbone, keep
        self.work = output.with_suffix(".runs")
        self._failed_before = {row for row in read_rows(output) if row.error}

    def has(self, job: Job) -> bool:
        """Whether it is done."""
        return any(row.run == job.key and not row.error for row in read_rows(self.output))

    def settle(self, job: Job, *, wait: bool = False) -> Row | None:
        """Does a run and returns its row, or another process's if it failed there meanwhile; None if it was done.

        Raises:
            BusyError: if another process does the run and `wait` is false.
        """
        folder = self.work / job.key
        with sole_writer(folder, wait=wait):
            row = next((row for row in read_rows(self.output) if row.run == job.key), None)
            if row is None or row in self._failed_before:
                row = _row(job, self.backbone, folder, self.keep)
                add_row(self.output, row)
            elif not row.error:  # another run of this cell may have failed since, without data
                drop_failed(self.output, row.cell)
                row = None
            if row is None or not row.error:
                shutil.rmtree(folder, ignore_errors=True)
            return row


def _row(job: Job, backbone: Backbone, folder: Path, keep: Path | None) -> Row:
    try:
        if isinstance(job.dataset, DataError):
            raise job.dataset
        fitted = _fit(job, job.dataset, backbone, folder)
        header, tested = evaluate_fitted(fitted)
    except UnwritableError:  # no other run could write its checkpoint either
        raise
    except (FpetError, MemoryError, RuntimeError) as error:
        if not _explains_itself(error):
            raise
        return dataclasses.replace(_planned(job, backbone), error=reason(error))
    path = folder / "task.safetensors" if keep is None else job.kept(keep)
    save_task(path, header, fitted.trained.model)  # if it cannot be, no other file can: its checkpoint waits for that
    return dataclasses.replace(
        _planned(job, backbone),
        scale=header.adapter.arguments["scale"] if fitted.tried else None,
        task_bytes=path.stat().st_size,
        gmacs=_gmacs(job, backbone),
        train_images=len(job.dataset.train),
        validation_images=len(job.dataset.val),
        **_measured(fitted.trained, tested),
    )


def _explains_itself(error: Exception) -> bool:
    """Whether it is about the run, its input or its need of memory, and no mistake of the program."""
    return isinstance(error, FpetError) or lacked_memory(error)


def _fit(job: Job, dataset: Dataset, backbone: Backbone, folder: Path) -> Fitted:
    method = job.method
    header = new_task(method, job.name, dataset.labels, backbone)
    return fit(header, backbone, dataset, method.recipe, folder / "task.checkpoint", scales=method.scales)


def _planned(job: Job, backbone: Backbone) -> Row:
    """What is known of a run before it starts."""
    method = job.method
    return Row(
        run=job.key,
        data=job.data,
        method=method.name,
        adapter=method.adapter.kind,
        adapter_arguments=json.dumps(method.adapter.arguments),
        reducer=method.reducer.kind,
        reducer_arguments=json.dumps(method.reducer.arguments),
        head_bits=method.head_bits,
        search_scale=json.dumps(method.scales),
        backbone=f"{backbone.architecture} {backbone.fingerprint[:KEY]}",
        device=device_name(backbone.device),
        threads=torch.get_num_threads(),
        fpet=__version__,
        torch=version("torch"),
        **method.recipe.numbers(),
    )


def _measured(trained: Trained, tested: Evaluation) -> dict[str, Any]:
    device = trained.model.backbone.device
    return {
        "validation_accuracy": trained.accuracy,
        "test_accuracy": tested.accuracy,
        "test_accuracy_unreduced": tested.accuracy_unreduced,
        "best_epoch": trained.epoch,
        "parameters": count_parameters(trained.model.adapter, trained.model.reducer),
        "tokens_in": tested.tokens_in,
        "tokens_out": tested.tokens_out,
        "training_seconds": round(sum(trained.seconds), 3),
        "epoch_seconds": round(statistics.median(trained.seconds), 4),
        "memory_bytes": trained.memory,
        "memory": "allocated" if device.type == "cuda" else "kept",
        "test_images": tested.images,
    }


def _gmacs(job: Job, backbone: Backbone) -> float | None:
    adapter, reducer = job.method.adapter, job.method.reducer
    try:
        return macs(backbone, adapter, reducer, folded=ADAPTERS[adapter.kind].foldable) / _GIGA
    except UnsupportedError:  # each image decides
        return None
