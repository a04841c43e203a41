"""What a training run needs to go on after it was killed, in one file."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fpet.adapters import ADAPTERS
from fpet.data import ResizedSplit
from fpet.errors import TaskError, UnwritableError
from fpet.files import exists, read_bytes, write_atomically, write_csv
from fpet.header import TaskHeader
from fpet.reducers import REDUCERS
from fpet.task import Task
from fpet.training.recipe import Recipe
from fpet.words import first

LOG_COLUMNS = ("epoch", "lr", "loss", "val_accuracy", "val_loss", "seconds")

_SUFFIX = ".checkpoint"
_NAMED, _SHOWN = 3, 40  # a message names so many differences of two runs, with so many characters of each value


def run_name(path: Path) -> str:
    """The name of a checkpoint's log: the checkpoint's without `.checkpoint`; other dots may be those of a number."""
    return path.name.removesuffix(_SUFFIX)


def check_log(path: Path) -> None:
    """Refuses a checkpoint path whose log would overwrite a file that is no log of a training.

    Raises:
        TaskError: also if no file can be called so.
    """
    log = _log(path)
    if exists(log, TaskError) and read_bytes(log, TaskError).splitlines()[:1] != [",".join(LOG_COLUMNS).encode()]:
        raise TaskError(f"{log}: there is such a file already, and it is no log of a training; move it away")


def _log(path: Path) -> Path:
    return path.with_name(f"{run_name(path)}.csv")


def run_identity(
    header: TaskHeader, recipe: Recipe, data: ResizedSplit, val: ResizedSplit, start: Task | None = None
) -> str:
    """What determines a run's result, as JSON; start: the task that it begins with, if there is one."""
    digest = hashlib.sha256()
    for tensor in (data.images, data.targets, val.images, val.targets):
        digest.update(tensor.contiguous().numpy().data)
    described = dataclasses.asdict(dataclasses.replace(header, provenance={}))
    decays = ADAPTERS[header.adapter.kind].decays, REDUCERS[header.reducer.kind].decays
    pixels, begun = digest.hexdigest(), {"start": start.digest} if start else {}
    return json.dumps({"task": described, "recipe": recipe.identity(), "pixels": pixels, "decays": decays, **begun})


@dataclass(frozen=True)
class Best:
    """The weights that did best on the validation images so far; epoch: counted from 1; accuracy: 0 to 1."""

    epoch: int
    accuracy: float
    loss: float
    weights: dict[str, Tensor]


@dataclass
class RunState:
    """The state of a run after an epoch.

    run: what determines the run's result, as JSON; a checkpoint of another run is refused. epoch: how many are done.
    weights, optimizer, scaler: state dicts, the last of the gradients' scale in float16, else empty. best: None before
    the first validation. log: one row an epoch, by LOG_COLUMNS. memory: most bytes that were allocated on the GPU.
    """

    run: str
    epoch: int
    weights: dict[str, Tensor]
    optimizer: dict[str, Any]
    best: Best | None = None
    log: list[dict[str, float | None]] = field(default_factory=list)
    scaler: dict[str, Any] = field(default_factory=dict)
    memory: int = 0

    def save(self, path: Path) -> None:
        """Writes the log as CSV, and then the checkpoint beside it, each atomically.

        Raises:
            UnwritableError: if a file cannot be written.
        """
        # Stopped in between, a run repeats the epoch with its row; after the last checkpoint no log is written again.
        write_csv(_log(path), LOG_COLUMNS, (map(row.get, LOG_COLUMNS) for row in self.log), UnwritableError)
        fields = {item.name: getattr(self, item.name) for item in dataclasses.fields(self)}
        buffer = io.BytesIO()
        torch.save({**fields, "best": self.best and dataclasses.asdict(self.best)}, buffer)
        write_atomically(path, buffer.getvalue(), UnwritableError)

    @classmethod
    def load(cls, path: Path, run: str) -> RunState:
        """Reads the checkpoint of this run onto the CPU; no code in the file is ever executed.

        Raises:
            TaskError: if the file is damaged or belongs to another run.
        """
        data = read_bytes(path, TaskError)
        try:
            state = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
            best = state.pop("best")
            checkpoint = cls(**state, best=best and Best(**best))
        except Exception as error:  # torch's reader raises whatever a damaged file makes it trip over
            raise TaskError(f"{path}: not a complete checkpoint; delete it to train from the start") from error
        if not _same(checkpoint.run, run):
            raise TaskError(
                f"{path}: the checkpoint is of another run ({_compared(checkpoint.run, run)}); delete it, or write to "
                "another file"
            )
        return checkpoint


def _same(old: str, new: str) -> bool:
    """Whether both are of one run, each as JSON: 1 is 1.0, and arguments have no order; old: as `_compared`."""
    try:
        return bool(json.loads(old) == json.loads(new))
    except (ValueError, TypeError, RecursionError):
        return False


def _compared(old: str, new: str) -> str:
    """In what two runs differ, each as JSON; old: what a file says, which may be anything."""
    try:
        return first(_differences(json.loads(old), json.loads(new), ""), most=_NAMED)
    except (ValueError, TypeError, RecursionError):
        return "it does not say of which"


def _differences(old: object, new: object, name: str) -> Iterator[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in {**old, **new}:
            yield from _differences(old.get(key), new.get(key), f"{name}.{key}" if name else key)
    elif name == "pixels" and old != new:
        yield "the training or validation images are others"
    elif old != new:
        was, now = ("not given" if value is None else json.dumps(value) for value in (old, new))
        yield f"{name} was {was}, is {now}" if max(len(was), len(now)) <= _SHOWN else f"{name} is another"
