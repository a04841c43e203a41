"""Trains and tests a plan of runs, one row of a table each."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import shutil
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from fpet import __version__
from fpet.adapters import ADAPTERS
from fpet.backbone import Backbone
from fpet.data import SOURCES, Dataset, load_dataset
from fpet.errors import DataError, FpetError, UnsupportedError
from fpet.evaluate import Evaluation
from fpet.files import exists
from fpet.fit import Fitted, check_fit, finish, fit
from fpet.flops import macs
from fpet.plan import Plan, PlannedMethod
from fpet.results import Row, add_row, drop_failed, read_rows
from fpet.room import lacked_memory
from fpet.run import Trained
from fpet.task import save_task
from fpet.untrained import half_way, new_header, preprocessing_of
from fpet.vit import count_parameters
from fpet.words import reason

_GIGA = 1e9
_KEY = 12  # hexadecimal digits that identify a run
_NAME = 50  # characters of a task's name, before its key


@dataclass(frozen=True)
class Job:
    """One run of a plan.

    data: its label in the plan; dataset: what it names, or why it cannot be had; method: with the run's seed; key:
    identifies all of it.
    """

    data: str
    dataset: Dataset | DataError
    method: PlannedMethod
    key: str

    @property
    def name(self) -> str:
        """The name of its task."""
        words = f"{Path(self.data).name}-{self.method.name}-{self.method.recipe.seed}".lower()
        return f"{re.sub('[^a-z0-9._-]+', '-', words).strip('.-_')[:_NAME]}-{self.key}"

    def kept(self, folder: Path) -> Path:
        """Where its task file is kept in a folder."""
        return folder / f"{self.name}.safetensors"


def jobs(plan: Plan, backbone: Backbone, cache: Path | None) -> Iterator[Job]:
    """The runs of a plan, data set by data set, so that one is in memory at a time.

    cache: folder that fetched data is kept in, if not the usual one.
    """
    reference = {
        "fingerprint": backbone.fingerprint,
        "arguments": backbone.arguments,
        "preprocessing": dataclasses.asdict(preprocessing_of(backbone)),
    }
    for data in plan.data:
        try:
            dataset: Dataset | DataError = load_dataset(data.source, None, cache, data.reading)
        except DataError as error:
            dataset = error
        source = {"data": data.label, "sha256": None if isinstance(dataset, DataError) else dataset.sha256}
        for planned in plan.methods:
            for seed in plan.seeds:
                recipe = dataclasses.replace(planned.recipe, seed=seed)
                method = dataclasses.replace(_placed(planned, backbone), recipe=recipe)
                described = {"source": source, "backbone": reference, "method": dataclasses.asdict(method)}
                key = hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()[:_KEY]
                yield Job(data.label, dataset, method, key)


def check_plan(plan: Plan, backbone: Backbone) -> None:
    """Checks that all data are there and each method can be trained, as far as is known before reading; takes no time.

    Raises:
        UnsupportedError: naming all data sets and methods that are wrong, and why.
    """
    if wrong := [*_missing_data(plan), *_wrong_methods(plan, backbone)]:
        raise UnsupportedError("; ".join(wrong))


def _missing_data(plan: Plan) -> list[str]:
    """Of names and folders that do not exist, or are both, why they cannot be read."""
    missing = []
    for data in plan.data:
        try:
            if (data.source in SOURCES) == (exists(path := Path(data.source), DataError) and path.is_dir()):
                load_dataset(data.source)
        except DataError as error:
            missing.append(str(error))
    return missing


def _wrong_methods(plan: Plan, backbone: Backbone) -> list[str]:
    wrong = []
    for planned in plan.methods:
        method = _placed(planned, backbone)
        try:
            header = new_header("plan", ("0", "1"), backbone, (method.adapter, method.reducer), method.head_bits)
            check_fit(header, backbone, method.recipe, method.scales)
        except UnsupportedError as error:
            wrong.append(f"{method.name}: {error}")
    return wrong


def sweep(
    plan: Plan, backbone: Backbone, output: Path, keep: Path | None, cache: Path | None
) -> Iterator[tuple[Job, Row | None]]:
    """Does the runs whose rows are not in `output` yet, or say there that they failed, and adds each's row.

    Yields every run of the plan, with its row if it was not done before. A run that was killed goes on from its
    checkpoint, in a folder beside `output`, when this is called again. A run that fails is a row with its error, which
    goes when the same data, method and seed are done. keep: folder for the task files, which are else deleted.

    Raises:
        TaskError: if `output` is no sweep's table, or a file cannot be written.
    """
    done = {row.run for row in read_rows(output) if not row.error}
    work = output.with_suffix(".runs")
    for job in jobs(plan, backbone, cache):
        if job.key not in done:
            row = _row(job, backbone, work / job.key, keep)
            add_row(output, row)
            yield job, row
            if row.error:
                continue
        else:  # it may have failed since, as another run, when its data could not be had
            drop_failed(output, (job.data, job.method.name, job.method.recipe.seed))
            yield job, None
        shutil.rmtree(work / job.key, ignore_errors=True)
    if work.is_dir() and not any(work.iterdir()):
        work.rmdir()


def _placed(planned: PlannedMethod, backbone: Backbone) -> PlannedMethod:
    """The method as it is for this backbone, which says where the reduction lies that names no block."""
    return dataclasses.replace(planned, reducer=half_way(planned.reducer, backbone.geometry.depth))


def _row(job: Job, backbone: Backbone, folder: Path, keep: Path | None) -> Row:
    try:
        if isinstance(job.dataset, DataError):
            raise job.dataset
        fitted = _fit(job, job.dataset, backbone, folder)
        header, tested = finish(fitted, job.dataset, job.method.recipe)
        path = folder / "task.safetensors" if keep is None else job.kept(keep)
        save_task(path, header, fitted.trained.model)
    except (FpetError, MemoryError, RuntimeError) as error:
        if not _explains_itself(error):
            raise
        return dataclasses.replace(_planned(job, backbone), error=reason(error))
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
    header = new_header(job.name, dataset.labels, backbone, (method.adapter, method.reducer), method.head_bits)
    return fit(header, backbone, dataset, method.recipe, folder / "task.checkpoint", scales=method.scales)


def _planned(job: Job, backbone: Backbone) -> Row:
    """What is known of a run before it starts."""
    method, recipe = job.method, job.method.recipe
    device = next(backbone.vit.parameters()).device
    return Row(
        run=job.key,
        data=job.data,
        method=method.name,
        seed=recipe.seed,
        epochs=recipe.epochs,
        adapter=method.adapter.kind,
        adapter_arguments=json.dumps(method.adapter.arguments),
        reducer=method.reducer.kind,
        reducer_arguments=json.dumps(method.reducer.arguments),
        head_bits=method.head_bits,
        batch_size=recipe.batch_size,
        lr=recipe.lr,
        precision=recipe.precision,
        warmup_epochs=recipe.warmup_epochs,
        warmup_lr=recipe.warmup_lr,
        min_lr=recipe.min_lr,
        weight_decay=recipe.weight_decay,
        drop_path=recipe.drop_path,
        validate_every=recipe.validate_every,
        search_scale=json.dumps(method.scales),
        backbone=f"{backbone.architecture} {backbone.fingerprint[:_KEY]}",
        device=torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        threads=torch.get_num_threads(),
        fpet=__version__,
        torch=version("torch"),
    )


def _measured(trained: Trained, tested: Evaluation) -> dict[str, Any]:
    device = next(trained.model.vit.parameters()).device
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
