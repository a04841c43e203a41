"""What `fpet train` refuses and says before it reads its data."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from published_files import save_small_backbone

from fpet.cli import main

pytestmark = pytest.mark.usefixtures("one_thread")

Told = Callable[..., str]
NO_DATA = "no data 'nowhere'"


@pytest.fixture(scope="module")
def backbone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_small_backbone(tmp_path_factory.mktemp("backbones") / "small.safetensors")


@pytest.fixture
def told(backbone: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Told:
    """What is said on standard error of a training whose data is not there."""

    def tell(*more: str) -> str:
        files = ["--backbone", str(backbone), "--output", str(tmp_path / "task.safetensors")]
        assert main(["train", "--data", "nowhere", "--name", "digits", *files, *more]) == 2
        return capsys.readouterr().err

    return tell


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (["--adapter-arguments", "rank=8"], "adaptformer has no argument 'rank'"),
        (["--adapter", "convpass"], "cannot go together"),
        (["--reducer-arguments", "block=9"], "block = 9: the backbone's blocks are 0 to 1"),
        (["--head-bits", "3"], "bits = 3: weights have 1, 2, 4, 8 or 32 bits"),
        (["--search-scale", "0"], "scale = 0.0 should be above 0"),
        (["--precision", "float16"], "float16 is for training on a GPU"),
        (["--name", "Not/A/Name"], "name 'Not/A/Name' is not 1 to 64"),
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
    assert line == (
        f"fpet: the warm-up of {warm_up} epochs is not over after {epochs} of training: the learning rate stays below "
        f"0.001, at most {highest}; give fewer --warmup-epochs"
    )
    assert NO_DATA in data


@pytest.mark.parametrize(("epochs", "warm_up"), [(100, 10), (12, 10), (3, 1), (1, 0)])
def test_a_warm_up_that_is_over_is_not_mentioned(epochs: int, warm_up: int, told: Told) -> None:
    assert "warm-up" not in told("--epochs", str(epochs), "--warmup-epochs", str(warm_up))
