"""What the library and the service answer on a GPU is what they answer on a CPU.

`TEST_DEVICE=cuda` has the other tests' services run there as well.
"""

from __future__ import annotations

import logging
import math
from pathlib import Path

import pictures
import pytest
import torch
from serving import Files, serving, small_settings
from small import METHODS, perturb, small_backbone, small_family, small_header
from target import DEVICE, needs_it
from torch import Tensor, nn
from torch.nn import functional as F

from fpet.cli import main
from fpet.data import Dataset
from fpet.header import Method
from fpet.sweeps.results import read_rows
from fpet.task import new_model
from fpet.training.recipe import Recipe
from fpet.training.run import Run

pytestmark = [needs_it, pytest.mark.usefixtures("one_thread")]

IMAGES = torch.randn((3, 3, 16, 16), generator=torch.Generator().manual_seed(0))
CLOSE = 1e-3  # of logits and probabilities in float32, whose sums come in another order


@pytest.mark.parametrize(("adapter", "reducer"), METHODS, ids=str)
def test_answers_are_those_of_a_cpu(adapter: Method, reducer: Method, tmp_path: Path) -> None:
    with torch.inference_mode():
        here, there = (
            torch.stack([model(IMAGES.to(device)).cpu() for model in small_family(tmp_path, adapter, reducer, device)])
            for device in ("cpu", DEVICE)
        )
    torch.testing.assert_close(there, here, rtol=CLOSE, atol=CLOSE)


def gradients(adapter: Method, reducer: Method, device: str) -> dict[str, Tensor]:
    """Of all that trains, without dropout, whose random numbers are others on each device."""
    backbone = small_backbone()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = new_model(small_header(backbone, adapter, reducer), backbone)
        perturb(model.trainable(), 0.05)
    backbone.move(device)
    model.trainable().to(device)
    for module in model.train().modules():
        if isinstance(module, nn.Dropout):
            module.p = 0
    tokens, sizes = model.encode(IMAGES.to(device))
    logits = model.head(model.pool(tokens))
    loss = F.cross_entropy(logits, torch.arange(len(IMAGES), device=device)) + model.reducer.penalty(sizes)
    loss.backward()
    named = model.trainable().named_parameters()
    return {name: value.grad.cpu() for name, value in named if value.grad is not None}


@pytest.mark.parametrize(("adapter", "reducer"), METHODS, ids=str)
def test_gradients_are_those_of_a_cpu(adapter: Method, reducer: Method) -> None:
    here, there = (gradients(adapter, reducer, device) for device in ("cpu", DEVICE))
    assert here
    torch.testing.assert_close(there, here, rtol=CLOSE, atol=CLOSE * max(value.abs().max() for value in here.values()))


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize(("adapter", "reducer"), METHODS, ids=str)
def test_trainings_learn(
    adapter: Method, reducer: Method, precision: str, digits: Dataset, caplog: pytest.LogCaptureFixture
) -> None:
    backbone = small_backbone()
    backbone.move(DEVICE)
    recipe = Recipe(epochs=6, batch_size=16, lr=1e-2, warmup_epochs=0, drop_path=0, precision=precision)
    with torch.random.fork_rng(), caplog.at_level(logging.INFO, "fpet"):
        run = Run(small_header(backbone, adapter, reducer), backbone, digits, recipe)
        for _ in range(recipe.epochs):
            run.advance(lambda: None)
    losses = [row["loss"] or math.nan for row in run.log]
    assert losses[-1] < losses[0]
    assert run.step_memory() > 0
    assert "cannot be captured" not in caplog.text


def test_views_of_images_and_class_weights_are_captured_too(digits: Dataset, caplog: pytest.LogCaptureFixture) -> None:
    backbone = small_backbone()
    backbone.move(DEVICE)
    with torch.random.fork_rng(), caplog.at_level(logging.INFO, "fpet"):
        views = Recipe(epochs=2, batch_size=16, hflip=0.5, crop_scale=0.3, class_weights="balanced")
        run = Run(small_header(backbone), backbone, digits, views)
        for _ in range(2):
            run.advance(lambda: None)
    assert len({row["loss"] for row in run.log}) == 2
    assert "cannot be captured" not in caplog.text


def test_a_task_is_trained_evaluated_and_asked_by_commands(
    backbone_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task, picture = tmp_path / "digits.safetensors", tmp_path / "picture.png"
    picture.write_bytes(pictures.png())
    more = ["--backbone", str(backbone_file), "--device", DEVICE]
    recipe = ["--epochs", "2", "--warmup-epochs", "0", "--reducer-arguments", "block=0"]
    trained = ["train", "--name", "digits", "--data", "digits", "--output", str(task), *recipe]
    assert main([*trained, *more]) == 0
    assert main(["evaluate", "--task", str(task), *more]) == 0
    capsys.readouterr()
    assert main(["classify", str(picture), "--task", str(task), *more]) == 0
    assert str(picture) in capsys.readouterr().out


def test_a_sweep_says_on_what_it_ran(backbone_file: Path, tmp_path: Path) -> None:
    plan, table = tmp_path / "plan.toml", tmp_path / "table.csv"
    plan.write_text(
        'data = ["digits"]\nseeds = [0]\nrecipe = { epochs = 1, warmup_epochs = 0 }\n'
        '[[method]]\nname = "FPET"\nreducer_arguments = { block = 0 }\n'
    )
    assert main(["sweep", str(plan), "--output", str(table), "--backbone", str(backbone_file), "--device", DEVICE]) == 0
    [row] = read_rows(table)
    device = torch.device(DEVICE)
    assert row.device == (torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu")
    assert row.memory == ("allocated" if device.type == "cuda" else "kept")


@pytest.mark.parametrize("changes", [{}, {"cuda_graphs": DEVICE == "cuda"}], ids=["plain", "graphs"])
def test_the_service_answers_as_on_a_cpu(changes: dict[str, object], small_files: Files) -> None:
    images = [pictures.png(seed) for seed in range(8)]
    told = []
    for settings in (small_settings(small_files, device="cpu"), small_settings(small_files, device=DEVICE, **changes)):
        with serving(settings) as service:
            told.append([service.classify(image, task) for image in images for task in ("digits", "plain")])
    for here, there in zip(*told, strict=True):
        assert (here.status_code, there.status_code) == (200, 200)
        one, other = (
            {each["label"]: each["probability"] for each in answer.json()["predictions"][0]} for answer in (here, there)
        )
        assert other == pytest.approx(one, abs=CLOSE)
