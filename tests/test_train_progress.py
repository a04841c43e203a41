"""What a run tells while it trains, also after it was killed: TensorBoard's scalars, and a bar with the time left."""

from __future__ import annotations

import csv
import logging
import os
import pty
import re
import subprocess
import sys
import termios
import tty
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from small import small_backbone, small_header

from fpet.backbone import Backbone
from fpet.data import Dataset
from fpet.errors import TaskError, UnsupportedError
from fpet.task import new_model
from fpet.training.checkpoint import RunState
from fpet.training.recipe import Recipe
from fpet.training.run import Run
from fpet.training.tensorboard import tensorboard_log
from fpet.training.train import train

pytestmark = pytest.mark.usefixtures("one_thread")

RECIPE = Recipe(epochs=4, batch_size=16, lr=1e-2, warmup_epochs=1, validate_every=2)

# A process of its own: a thread of TensorBoard's fails as well.
FULL = """
import resource, sys
from pathlib import Path
from fpet.errors import TaskError
from fpet.training.tensorboard import tensorboard_log
try:
    with tensorboard_log(Path(sys.argv[1]), 0) as write:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
        write({"epoch": 1.0, "loss": 2.0})
except TaskError as error:
    print(error)
"""


def broken_run(backbone: Backbone, digits: Dataset, checkpoint: Path, log: Path | None) -> None:
    """Trains two epochs, and with a log a third that is killed before its checkpoint."""
    with torch.random.fork_rng(devices=[]):
        run = Run(small_header(backbone), backbone, digits, RECIPE)
        for _ in range(2):
            run.advance(lambda: None)
        run.state().save(checkpoint)
        if log is not None:
            run.advance(lambda: None)
            with tensorboard_log(log, 0) as write:
                for row in run.log:
                    write({**row, "loss": -1.0} if row["epoch"] == 3 else row)


def test_tensorboard_shows_the_log_of_a_broken_run(backbone: Backbone, digits: Dataset, tmp_path: Path) -> None:
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    checkpoint, log = tmp_path / "run.checkpoint", tmp_path / "log"
    broken_run(backbone, digits, checkpoint, log)
    train(small_header(backbone), backbone, digits, RECIPE, checkpoint, tensorboard=log)
    shown = events.EventAccumulator(str(log)).Reload()
    with checkpoint.with_suffix(".csv").open() as file:
        rows = list(csv.DictReader(file))
    for name in ("lr", "loss", "val_accuracy", "val_loss"):
        scalars = {scalar.step: scalar.value for scalar in shown.Scalars(name)}
        assert scalars == {int(row["epoch"]): pytest.approx(float(row[name])) for row in rows if row[name]}, name


def test_a_log_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    (tmp_path / "file").touch()
    with pytest.raises(TaskError, match="file/log: cannot be written"), tensorboard_log(tmp_path / "file" / "log", 0):
        pass


def test_a_log_that_cannot_grow_is_named(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    done = subprocess.run([sys.executable, "-c", FULL, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout == f"{tmp_path}: cannot be written: File too large\n"  # on the other, a thread of TensorBoard's


def test_a_log_needs_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)  # how Python marks what cannot be imported
    with pytest.raises(UnsupportedError, match="needs the package tensorboard"), tensorboard_log(tmp_path, 0):
        pass
    assert not list(tmp_path.iterdir())


def test_the_bar_shows_the_time_left_of_a_broken_run(
    backbone: Backbone, digits: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = tmp_path / "run.checkpoint"
    broken_run(backbone, digits, checkpoint, None)
    ours, theirs = pty.openpty()
    tty.setraw(theirs)
    termios.tcsetwinsize(theirs, (24, 160))
    with open(theirs, "w") as terminal, monkeypatch.context() as context:  # noqa: PTH123  # a descriptor
        context.setattr(sys, "stderr", terminal)
        train(small_header(backbone), backbone, digits, RECIPE, checkpoint)
    parts = []
    with suppress(OSError):  # which is how it says that nothing more will come
        while part := os.read(ours, 1 << 16):
            parts.append(part)
    os.close(ours)
    shown = b"".join(parts).decode()
    first, *_, last = re.findall(r"(\d+)/20 \[\d\d:\d\d<([^,]+),", shown)
    assert (first[0], last[0]) == ("10", "20")  # half of the steps are behind it
    assert last[1] == "00:00"
    assert "best validation=" in shown


def test_without_a_terminal_start_and_validations_are_a_line_each(
    backbone: Backbone, digits: Dataset, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    header, checkpoint = small_header(backbone), tmp_path / "run.checkpoint"
    parameters = sum(value.numel() for value in new_model(header, backbone).trainable().parameters())
    described = (
        f"digits: 10 classes, 80 training, 40 validation and 60 test images, {parameters} trainable parameters, "
    )
    for before, validations in (("4 epochs", ["2", "4"]), ("goes on after epoch 2 of 4", ["4"])):
        if validations == ["4"]:
            broken_run(backbone, digits, checkpoint, None)
        train(header, backbone, digits, RECIPE, checkpoint)
        first, *lines = caplog.messages
        caplog.clear()
        assert first == f"{described}{before} of {len(digits.train) // RECIPE.batch_size} steps"
        told = r"digits: epoch (\d), loss \d\.\d+, best validation 0\.\d+ \(epoch \d\)"
        shown = [re.fullmatch(told, line) for line in lines]
        assert [match and match[1] for match in shown] == validations


def test_float16_needs_a_gpu(backbone: Backbone, digits: Dataset) -> None:
    with pytest.raises(UnsupportedError, match="float16 is for training on a GPU; on cpu there is bfloat16"):
        Run(small_header(backbone), backbone, digits, Recipe(batch_size=16, precision="float16"))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_float16_scales_gradients_and_keeps_the_scale(digits: Dataset, tmp_path: Path) -> None:
    backbone = small_backbone()
    backbone.vit.cuda()
    recipe = Recipe(epochs=2, batch_size=16, lr=1e-2, warmup_epochs=0, precision="float16")
    trained = train(small_header(backbone), backbone, digits, recipe, tmp_path / "run.checkpoint")
    run = Run(small_header(backbone), backbone, digits, recipe)
    state = RunState.load(tmp_path / "run.checkpoint", run.identity)
    assert state.scaler["scale"] > 1
    run.restore(state)
    assert run.scaler.state_dict() == state.scaler
    assert trained.memory == state.memory > 0
