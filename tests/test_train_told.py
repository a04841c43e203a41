"""What `fpet train` refuses and says before it reads its data."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fpet.cli import main

pytestmark = pytest.mark.usefixtures("one_thread")

Told = Callable[..., str]
NO_DATA = "no data 'nowhere'"


@pytest.fixture
def told(backbone_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Told:
    """What is said on standard error of a training whose data is not there."""

    def tell(*more: str) -> str:
        files = ["--backbone", str(backbone_file), "--output", str(tmp_path / "digits.safetensors")]
        assert main(["train", "--data", "nowhere", "--name", "digits", *files, *more]) == 2
        return capsys.readouterr().err

    return tell


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (["--adapter-arguments", "rank=8"], "adaptformer has no argument 'rank'"),
        (["--adapter", "convpass"], "cannot go together"),
        (["--reducer-arguments", "block=9"], "block = 9: the backbone's blocks are 0 to 1"),
        (["--search-scale", "0"], "adaptformer: scale = 0.0 should be above 0 and finite"),
        (["--adapter-arguments", "scale=nan"], "adaptformer: scale = nan should be above 0 and finite"),
        (["--adapter-arguments", "scale=inf"], "adaptformer: scale = inf should be above 0 and finite"),
        (["--adapter", "lora", "--adapter-arguments", "scale=0"], "lora: scale = 0 should be above 0 and finite"),
        (["--adapter-arguments", "scale=-0.5"], "adaptformer: scale = -0.5 should be above 0 and finite"),
        (["--adapter-arguments", "dropout=1"], "adaptformer: dropout = 1 should be in [0, 1)"),
        (["--adapter-arguments", "dropout=nan"], "adaptformer: dropout = nan should be in [0, 1)"),
        (["--reducer-arguments", "dropout=-0.1"], "bdm: dropout = -0.1 should be in [0, 1)"),
        (["--precision", "float16"], "float16 is for training on a GPU"),
        (["--name", "Not/A/Name"], "name 'Not/A/Name' is not 1 to 64"),
        (["--name", "mine"], "digits.safetensors: a task's file has the task's name; call it mine.safetensors, or"),
    ],
)
def test_methods_are_checked_before_the_data_is_read(wrong: list[str], message: str, told: Told) -> None:
    error = told(*wrong)
    assert message in error
    assert NO_DATA not in error


@pytest.mark.parametrize(
    ("epochs", "warm_up", "highest"), [(5, 10, "0.0003"), (1, 10, "1e-06"), (2, 1, "1e-06"), (11, 10, "0.0009")]
)
def test_a_warm_up_that_is_not_over_is_said(epochs: int, warm_up: int, highest: str, told: Told) -> None:
    line, data = told("--epochs", str(epochs), "--warmup-epochs", str(warm_up)).splitlines()
    counted = f"{warm_up} epoch{'s' if warm_up > 1 else ''}"
    assert line == (
        f"fpet: the warm-up of {counted}, which comes after the first, is not over after {epochs} of training: "
        f"the learning rate stays below 0.001, at most {highest}; give fewer --warmup-epochs"
    )
    assert NO_DATA in data


@pytest.mark.parametrize("epochs", [1, 5, 11, 30, 200])
def test_a_warm_up_that_is_not_asked_for_is_over_in_time(epochs: int, told: Told) -> None:
    assert "warm-up" not in told("--epochs", str(epochs))


@pytest.mark.parametrize(("epochs", "warm_up"), [(100, 10), (12, 10), (3, 1), (1, 0)])
def test_a_warm_up_that_is_over_is_not_mentioned(epochs: int, warm_up: int, told: Told) -> None:
    assert "warm-up" not in told("--epochs", str(epochs), "--warmup-epochs", str(warm_up))


@pytest.mark.parametrize(
    ("option", "value", "known"),
    [("--precision", "half", "'float32', 'bfloat16', 'float16'"), ("--head-bits", "3", "1, 2, 4, 8, 32")],
)
def test_what_is_none_of_a_few_values_is_refused_with_them(
    option: str, value: str, known: str, told: Told, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        told(option, value)
    said = capsys.readouterr().err
    assert f"argument {option}: invalid choice: " in said
    assert known.replace("'", "") in said.replace("'", "")


def test_a_format_that_is_slow_is_said_to_be(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fpet.commands.train.slowness", lambda precision, device: f"{precision} is slow on {device}")
    slow, data = told("--precision", "bfloat16").splitlines()
    assert slow == "fpet: bfloat16 is slow on cpu; leave out --precision"
    assert NO_DATA in data


# Whoever runs the tests in the background has them, and what they start, ignore the signal.
_INTERRUPTIBLE = """
import signal
import sys
from fpet.cli import main
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.exit(main(sys.argv[1:]))
"""


def test_a_training_that_is_interrupted_says_that_it_can_go_on(backbone_file: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", _INTERRUPTIBLE, "train", "--data", "digits", "--name", "digits"]
    command += ["--epochs", "1000000"]
    command += [
        "--backbone",
        str(backbone_file),
        "--output",
        str(tmp_path / "digits.safetensors"),
        "--validate-every",
        "1",
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as training:
        assert training.stderr is not None
        for line in training.stderr:
            if line.startswith("fpet: digits: epoch 1,"):  # its checkpoint has been written
                training.send_signal(signal.SIGINT)
                break
        last = training.communicate(timeout=60)[1].splitlines()[-2:]
    assert training.returncode == 130
    assert last == ["fpet: the same command goes on after the last epoch that was finished", "fpet: interrupted"]
    assert (tmp_path / "digits.checkpoint").exists()
