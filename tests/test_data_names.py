"""A folder that is called as a named data set is: neither is ever taken for the other."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from picture_files import classes
from plans import PLAN, command
from serving import write_task
from small import small_backbone, small_header

from fpet.cli import main
from fpet.data import load_dataset
from fpet.sweeps.plan import load_plan

pytestmark = pytest.mark.usefixtures("one_thread")

LABELS = tuple("0123456789")
BOTH = (
    "digits is the name of a data set, and there is a folder of that name here: say ./digits for the folder; for the "
    "data set of that name go to another folder"
)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with a folder `digits` of the same classes as the data set has."""
    classes(tmp_path / "digits", dict.fromkeys(LABELS, 5))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def evaluate(here: Path, backbone_file: Path, provenance: dict[str, object]) -> list[str]:
    """The command that evaluates a task on what it was trained on, as its provenance says it."""
    header = dataclasses.replace(small_header(small_backbone()), provenance=provenance)
    write_task(here / "digits.safetensors", header, small_backbone())
    return ["evaluate", "--task", str(here / "digits.safetensors"), "--backbone", str(backbone_file), "--json"]


def test_a_bare_name_of_both_is_refused(here: Path, backbone_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train = ["train", "--name", "a", "--backbone", str(backbone_file), "--epochs", "1", "--batch-size", "10"]
    assert main([*train, "--data", "digits"]) == 2
    assert capsys.readouterr().err == f"fpet: {BOTH}\n"
    assert main([*train, "--data", "./digits"]) == 0
    assert "10 classes, 30 training, 10 validation and 10 test images" in capsys.readouterr().err
    (here / "plan.toml").write_text(PLAN.replace(', "nowhere"', ""))
    assert main(command(here / "plan.toml", here / "table.csv", backbone_file)) == 2
    assert BOTH in capsys.readouterr().err
    assert not (here / "table.csv").exists()


def test_the_folder_of_a_plan_is_one(here: Path) -> None:
    (here / "plan.toml").write_text(PLAN.replace('"digits", "nowhere"', '{ folder = "digits", split_seed = 1 }'))
    (planned,) = load_plan(here / "plan.toml").data
    assert planned.label == "./digits split_seed=1"
    assert len(load_dataset(planned.source, reading=planned.reading).train) == 30


def test_what_a_task_was_trained_on_is_no_source_of_that_name(
    here: Path, backbone_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trained = load_dataset("./digits")
    data = {"name": trained.name, "sha256": trained.sha256, **trained.choices}
    assert main(evaluate(here, backbone_file, {"data": data})) == 2
    said = capsys.readouterr().err
    assert "trained on data called 'digits', but not on those of the named source; say which --data to take" in said


def test_the_source_that_a_task_was_trained_on_is_no_folder_of_that_name(
    here: Path, backbone_file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir("/")
    trained = load_dataset("digits")
    monkeypatch.chdir(here)
    data = {"name": trained.name, "sha256": trained.sha256}
    assert main(evaluate(here, backbone_file, {"data": data})) == 0
    assert json.loads(capsys.readouterr().out)["images"] == 597
    assert main(["data", "digits"]) == 0
