"""Fits a task's adapter, reducer and head to training images; the backbone stays as it is."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import torch
from tqdm import tqdm

from fpet.backbone import Backbone
from fpet.backbone_files.described import fingerprint
from fpet.data import Dataset
from fpet.errors import TaskError
from fpet.files import exists
from fpet.header import TaskHeader
from fpet.task import Task
from fpet.training.checkpoint import RunState, check_log
from fpet.training.parallel import ALONE, Processes
from fpet.training.randomness import random_state_kept
from fpet.training.recipe import Recipe
from fpet.training.run import Run, Trained
from fpet.training.tensorboard import tensorboard_log
from fpet.vit import count_parameters
from fpet.words import count

logger = logging.getLogger(__name__)


def train(
    header: TaskHeader,
    backbone: Backbone,
    dataset: Dataset,
    recipe: Recipe,
    checkpoint: str | os.PathLike[str],
    *,
    tensorboard: str | os.PathLike[str] | None = None,
    group: Processes = ALONE,
    start: Task | None = None,
) -> Trained:
    """Trains a model of the task that `header` describes, on the backbone's device: a fresh one, or with `start` one
    that begins with that task's weights (`first_model`).

    The state is written to `checkpoint` after each epoch, its log beside it as CSV, and into `tensorboard` if that
    folder is given; the start and each validation are logged. If the checkpoint is there the run goes on from it; on a
    CPU the result is then bit for bit that of a run without a break. Test images are never looked at. The random state
    of the CPU and of the backbone's device is left as it was.

    In a group each process calls this, and its first alone writes files. The result is that of one process up to
    rounding, save that each draws views, dropout and stochastic depth itself, and has LTMP's penalty of its own images.

    Raises:
        DataError: if a picture cannot be read, the classes are not the header's labels, there are fewer training images
            than one batch, or there is no memory to keep the training and validation images in.
        TaskError: if the checkpoint is damaged or of another run, or not that of all processes, another file has the
            log's name (see `check_log`), or as DivergedError the loss is no longer finite; as `first_model`.
        UnsupportedError: for methods that do not fit the backbone, a precision that does not fit the device, a backbone
            that is not float32, or a batch that the group cannot share evenly.
    """
    checkpoint = Path(checkpoint)
    check_log(checkpoint)
    with random_state_kept(backbone.device), _recipe_alone(backbone.device):
        run = Run(header, backbone, dataset, recipe, group, start=start)
        _resume(run, checkpoint)
        if group.rank == 0:
            logger.info("%s", _start(run, header, dataset))
            _lead(run, header.name, checkpoint, Path(tensorboard) if tensorboard else None)
        else:
            while run.epoch < recipe.epochs:
                run.advance(lambda: None)
        return run.result()


@contextmanager
def _recipe_alone(device: torch.device) -> Iterator[None]:
    """Modes of torch that the caller is in do not change what is trained.

    Autocast is only switched off: within another autocast, that of the steps would keep the weights that it has cast.
    """
    before = torch.is_autocast_enabled(device.type)
    torch.set_autocast_enabled(device.type, False)
    try:
        with torch.inference_mode(mode=False), torch.enable_grad():
            yield
    finally:
        torch.set_autocast_enabled(device.type, before)


def _resume(run: Run, checkpoint: Path) -> None:
    if exists(checkpoint, TaskError):
        run.restore(RunState.load(checkpoint, run.identity))
    # After this all have read it: the first process may remove the checkpoint of a finished run.
    _refuse_differences(run, checkpoint)


def _refuse_differences(run: Run, checkpoint: Path) -> None:
    """Raises TaskError, in every process, if one begins at another epoch or with other weights than the first."""
    if run.group.size == 1:
        return
    own = torch.tensor([run.epoch, *bytes.fromhex(fingerprint(run.tuned))], device=run.device)
    first, *others = (state.tolist() for state in run.group.gather(own))
    for rank, state in enumerate(others, start=1):
        if state[0] != first[0]:
            difference = f"begins after {count(state[0], 'epoch')}, and process 0 after {first[0]}"
        elif state != first:
            difference = "begins with other weights than process 0"
        else:
            continue
        raise TaskError(f"{checkpoint}: process {rank} {difference}; each of them needs the same checkpoint")


def _start(run: Run, header: TaskHeader, dataset: Dataset) -> str:
    """What a run starts with."""
    trainable = count_parameters(run.tuned)
    epochs = run.recipe.epochs
    done = f"goes on after epoch {run.epoch} of {epochs}" if run.epoch else count(epochs, "epoch")
    done += f" of {count(run.steps, 'step')}"
    return (
        f"{header.name}: {len(header.labels)} classes, {len(dataset.train)} training, {len(dataset.val)} validation "
        f"and {count(len(dataset.test), 'test image')}, {count(trainable, 'trainable parameter')}, {done}"
    )


def _lead(run: Run, name: str, checkpoint: Path, tensorboard: Path | None) -> None:
    """Trains to the end, with a log and checkpoints, and a bar that shows the time left or a line a validation."""
    epochs, done = run.recipe.epochs, run.epoch * run.steps
    log = tensorboard_log(tensorboard, run.epoch) if tensorboard else nullcontext(lambda _: None)
    with log as write, tqdm(total=epochs * run.steps, initial=done, desc=name, unit="step", disable=None) as bar:
        while run.epoch < epochs:
            run.advance(bar.update)
            write(run.log[-1])
            run.state().save(checkpoint)
            bar.set_postfix(run.summary())
            if bar.disable and run.log[-1]["val_accuracy"] is not None:  # there is no terminal
                logger.info("%s: %s", name, ", ".join(map(" ".join, run.summary().items())))
