"""Temperature scaling: the minimum of the cross-entropy, in the head alone, and only where there is one."""

from __future__ import annotations

import dataclasses
import math
import re
from pathlib import Path

import pytest
import torch
from published_files import save_small_backbone
from scipy.optimize import minimize_scalar
from serving import write_task
from small import BDM, METHODS, small_backbone, small_digits, small_header
from torch.nn import functional as F

from fpet.calibration_error import calibration_error
from fpet.cli import main
from fpet.data import Dataset, Split
from fpet.errors import DataError
from fpet.evaluation import classify, logits
from fpet.header import HeadSpec, Method
from fpet.provenance import stated_temperature
from fpet.task import Task, save_tensors
from fpet.temperature import calibrate, fit_temperature

pytestmark = pytest.mark.usefixtures("one_thread")
BACKBONE, HEAD = small_backbone(), HeadSpec()
TRAINING = [
    "--data",
    "digits",
    "--epochs",
    "3",
    "--batch-size",
    "16",
    "--lr",
    "0.01",
    "--reducer-arguments",
    "block=0,dim=4",
]


@pytest.fixture(scope="module")
def digits() -> Dataset:
    return small_digits()


def sure(folder: Path, adapter: Method, reducer: Method, head: HeadSpec = HEAD) -> Task:
    """A task with random weights, far from zero."""
    header = dataclasses.replace(small_header(BACKBONE, adapter, reducer), head=head)
    write_task(folder / "digits.safetensors", header, BACKBONE)
    return Task.load(folder / "digits.safetensors")


def half_right(digits: Dataset, task: Task) -> Dataset:
    """The data, but every other validation image is of the class that the task takes it for."""
    said = logits(task.build(BACKBONE), digits.val, task.header.preprocessing).argmax(dim=1)
    said[1::2] = (said[1::2] + 1) % 10
    return dataclasses.replace(digits, val=Split(digits.val.images, said))


@pytest.mark.parametrize("scale", [0.05, 1.0, 30.0])
def test_the_temperature_is_that_of_the_least_cross_entropy(scale: float) -> None:
    torch.manual_seed(1)
    targets = torch.randint(5, (300,))
    found = scale * (torch.randn(300, 5) + F.one_hot(targets, 5))
    least = minimize_scalar(
        lambda log: float(F.cross_entropy(found.double() / math.exp(log), targets)), bracket=(-1, 1), tol=1e-10
    )
    assert fit_temperature(found, targets) == pytest.approx(math.exp(least.x), rel=1e-5)
    assert fit_temperature(found * 7, targets) == pytest.approx(7 * fit_temperature(found, targets), rel=1e-6)


def test_without_a_minimum_there_is_no_temperature() -> None:
    targets = torch.arange(6) % 3
    with pytest.raises(DataError, match="all 6 validation images are answered right"):
        fit_temperature(F.one_hot(targets, 3).float(), targets)
    with pytest.raises(DataError, match="no better than a guess"):
        fit_temperature(-F.one_hot(targets, 3).float(), targets)


@pytest.mark.parametrize("head", [HEAD, HeadSpec(bits=1, bias=False), HeadSpec(bits=8, bias=False)], ids=str)
@pytest.mark.parametrize(("adapter", "reducer"), [METHODS[0], (Method("lora"), BDM)], ids=lambda method: method.kind)
def test_the_head_alone_is_divided(
    adapter: Method, reducer: Method, head: HeadSpec, digits: Dataset, tmp_path: Path
) -> None:
    task = sure(tmp_path, adapter, reducer, head)
    before = task.build(BACKBONE)
    found = calibrate(task, BACKBONE, half_right(digits, task))
    assert found.temperature != pytest.approx(1, abs=0.01)
    assert found.loss < found.loss_before
    save_tensors(tmp_path / "again.safetensors", found.header, found.tensors, BACKBONE)
    calibrated = Task.load(tmp_path / "again.safetensors")
    assert {name for name, value in task.tensors.items() if not torch.equal(value, calibrated.tensors[name])} <= {
        "head.weight",
        "head.bias",
        "head.weight.stats",
    }
    images = digits.test.resized(task.header.preprocessing).images
    with torch.inference_mode():
        old, new = (
            classify(model, images, task.header.preprocessing)[0] for model in (before, calibrated.build(BACKBONE))
        )
    torch.testing.assert_close(new, old / found.temperature)
    assert not torch.equal(new, old)


def test_what_the_head_was_divided_by_is_told_in_all(digits: Dataset, tmp_path: Path) -> None:
    task = sure(tmp_path, Method("lora"), BDM)
    assert stated_temperature(task.header) == 1
    data = half_right(digits, task)
    found = calibrate(task, BACKBONE, data, batch_size=7)
    doubled = {name: 2 * value if name.startswith("head.") else value for name, value in found.tensors.items()}
    save_tensors(tmp_path / "twice.safetensors", found.header, doubled, BACKBONE)
    twice = Task.load(tmp_path / "twice.safetensors")
    again = calibrate(twice, BACKBONE, data)
    assert again.temperature == pytest.approx(2, rel=1e-3)
    assert stated_temperature(again.header) == pytest.approx(2 * found.temperature, rel=1e-3)
    told = again.header.provenance["temperature"]
    assert (told["data"], told["images"]) == ("digits", 40)
    assert told["loss"] == pytest.approx(found.loss, rel=1e-4)


def test_logits_are_those_of_the_forward_in_any_batches(digits: Dataset, tmp_path: Path) -> None:
    task = sure(tmp_path, Method("lora"), BDM)
    model = task.build(BACKBONE)
    images = digits.val.resized(task.header.preprocessing).images
    with torch.inference_mode():
        expected = classify(model, images, task.header.preprocessing)[0]
    torch.testing.assert_close(logits(model, digits.val, task.header.preprocessing, 7), expected)
    with pytest.raises(ValueError, match="batch_size = 0"):
        logits(model, digits.val, task.header.preprocessing, 0)


def test_the_calibration_error_by_hand() -> None:
    probabilities = torch.tensor([0.95, 0.99, 1.0, 0.30, 0.32])
    right = torch.tensor([True, True, False, False, True])
    # The bin of 14/15 to 1 has a mean of 0.98 and two of three right, that of 4/15 to 5/15 one of 0.31 and one of two.
    expected = (abs(0.98 - 2 / 3) * 3 + abs(0.31 - 1 / 2) * 2) / 5
    assert calibration_error(probabilities, right) == pytest.approx(expected)
    assert calibration_error(torch.ones(4), torch.ones(4, dtype=torch.bool)) == 0


def test_the_command_calibrates_and_evaluate_shows_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    backbone = ["--backbone", str(save_small_backbone(tmp_path / "small.safetensors"))]
    assert (
        main(
            ["train", "--name", "digits", "--output", str(tmp_path / "0" / "digits.safetensors"), *TRAINING, *backbone]
        )
        == 0
    )
    fitted = Task.load(tmp_path / "0" / "digits.safetensors")
    tensors = {name: 5 * value if name.startswith("head.") else value for name, value in fitted.tensors.items()}
    save_tensors(tmp_path / "digits.safetensors", fitted.header, tensors, BACKBONE)
    task = Task.load(tmp_path / "digits.safetensors")
    capsys.readouterr()
    output = tmp_path / "new" / "digits.safetensors"
    calibration = ["calibrate", "--data", "digits", *backbone, "--task", str(task.path), "--output"]
    assert main([*calibration, str(output)]) == 0
    said = re.fullmatch(
        rf"{output}: temperature (\S+); cross-entropy of 200 validation images (\S+) before, (\S+) after\n",
        capsys.readouterr().out,
    )
    assert said
    assert float(said[3]) < float(said[2])
    errors = []
    for path in (task.path, output):
        assert main(["evaluate", "--task", str(path), "--data", "digits", *backbone]) == 0
        shown = re.search(
            r"^accuracy (\S+) .*^error    (\S+)  expected calibration", capsys.readouterr().out, re.M | re.S
        )
        assert shown
        errors.append((shown[1], float(shown[2])))
    assert errors[0][0] == errors[1][0]  # as accurate
    assert errors[1][1] < errors[0][1] / 2
    for path, message in (
        (output, "it is there already"),
        (tmp_path / "other.safetensors", "a task's file has the task's name; call it digits.safetensors"),
        (tmp_path / "digits.bin", "a task file's name ends in .safetensors"),
    ):
        assert main([*calibration, str(path)]) == 2
        assert message in capsys.readouterr().err
