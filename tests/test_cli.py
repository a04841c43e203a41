"""The command line: train, evaluate and list real tasks; one line and exit code 2 for wrong input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from fpet.cli import main
from fpet.errors import TaskError
from fpet.hardware import cpu
from fpet.hardware.precision import slowness
from fpet.header import Method
from fpet.task import Task
from fpet.training.recipe import Recipe

pytestmark = pytest.mark.usefixtures("one_thread")

FAST = ["--epochs", "2", "--warmup-epochs", "0", "--lr", "0.01", "--batch-size", "100"]


@pytest.fixture(scope="module")
def task(backbone_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tasks") / "digits.safetensors"
    assert main([*train(backbone_file, path), "--adapter-arguments", "dim=4,scale=0.5", "--head-bits", "8"]) == 0
    return path


def train(backbone_file: Path, output: Path) -> list[str]:
    files = ["--backbone", str(backbone_file), "--output", str(output)]
    return ["train", "--data", "digits", "--name", "digits", *files, "--reducer-arguments", "block=0", *FAST]


def test_training_tells_how_it_goes_line_by_line(
    backbone_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("one", "two"):  # in one process, as from Python: nothing is told twice
        output = tmp_path / name / "digits.safetensors"
        assert main([*train(backbone_file, output), "--epochs", "1"]) == 0
        steps, start, validation, *_ = capsys.readouterr().err.splitlines()
        assert steps == "fpet: 8 steps in all will teach little: give more --epochs, or a smaller --batch-size"
        assert start.startswith("fpet: digits: 10 classes, 800 training, 200 validation and 597 test images, ")
        assert validation.startswith("fpet: digits: epoch 1, loss ")


def test_training_writes_the_task_and_where_it_comes_from(task: Path) -> None:
    header = Task.load(task).header
    assert (header.name, header.labels) == ("digits", tuple("0123456789"))
    assert header.adapter == Method("adaptformer", {"dim": 4, "scale": 0.5, "bits": 32, "dropout": 0.1})
    matching = {"dim": 32, "bits": 1, "dropout": 0.1, "refine": True, "stop_gradient": True}
    assert header.reducer == Method("bdm", {"block": 0, **matching})
    assert header.head.bits == 8
    assert header.preprocessing.size == (16, 16)
    provenance = header.provenance
    assert provenance["data"]["train_images"] == 800
    assert len(provenance["data"]["sha256"]) == 64
    assert provenance["recipe"] == Recipe(epochs=2, warmup_epochs=0, lr=0.01, batch_size=100).numbers()
    assert provenance["epoch"] == 2
    assert (provenance["processes"], provenance["device"]) == (1, cpu.name())
    assert provenance["versions"].keys() == {"fpet", "torch", "timm"}
    assert provenance["test"]["images"] == 597
    assert (provenance["test"]["tokens_in"], provenance["test"]["tokens_out"]) == (17, 9)
    assert sorted(path.name for path in task.parent.iterdir()) == ["digits.csv", "digits.safetensors"]


def test_tokens_merge_half_way_unless_said_otherwise(backbone_file: Path, tmp_path: Path) -> None:
    for reducer, block in (("bdm", 1), ("none", None)):
        output = tmp_path / f"{reducer}.safetensors"
        command = ["train", "--data", "digits", "--name", reducer, "--output", str(output), "--reducer", reducer]
        assert main([*command, "--backbone", str(backbone_file), *FAST, "--epochs", "1"]) == 0
        assert Task.load(output).header.reducer.arguments.get("block") == block


def test_evaluation_confirms_what_the_task_states(
    task: Path, backbone_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["evaluate", "--task", str(task), "--backbone", str(backbone_file)]
    assert main([*command, "--json", "--baseline"]) == 0
    report = json.loads(capsys.readouterr().out)
    stated = Task.load(task)
    assert (report["task"], report["digest"], report["data"]) == ("digits", stated.digest, "digits")
    for name, value in stated.header.provenance["test"].items():
        assert report[name] == pytest.approx(value, abs=2 / 597), name
    assert report["baseline"]["accuracy"] > 0.9
    assert "classes" not in report
    assert main(command) == 0
    assert f"{report['accuracy']:.4f}  with its token reduction (17 -> 9 tokens)" in capsys.readouterr().out


def test_evaluation_in_another_precision(task: Path, backbone_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["evaluate", "--task", str(task), "--backbone", str(backbone_file), "--json"]
    assert main([*command, "--precision", "bfloat16"]) == 0
    captured = capsys.readouterr()
    rounded = json.loads(captured.out)
    assert rounded["precision"] == "bfloat16"
    assert rounded["accuracy"] == pytest.approx(Task.load(task).header.provenance["test"]["accuracy"], abs=0.03)
    slow = slowness("bfloat16", torch.device("cpu"))
    assert (f"fpet: {slow}; leave out --precision" in captured.err.splitlines()) == bool(slow)


def test_evaluation_tells_classes_apart(task: Path, backbone_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["evaluate", "--task", str(task), "--backbone", str(backbone_file), "--per-class"]
    assert main([*command, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    classes = report["classes"]
    assert [one["label"] for one in classes] == list("0123456789")
    assert sum(one["images"] for one in classes) == report["images"]
    for name in ("accuracy", "accuracy_unreduced"):
        assert sum(one[name] * one["images"] for one in classes) == pytest.approx(report[name] * report["images"])
    mistaken = [one for one in classes if one["accuracy"] < 1]
    assert all(one["mostly_taken_for"] != one["label"] and one["times"] > 0 for one in mistaken)
    assert mistaken
    assert main(command) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-11].split()[:3] == ["label", "images", "accuracy"]
    assert lines[-10].split()[:3] == ["0", str(classes[0]["images"]), f"{classes[0]['accuracy']:.4f}"]


def test_tasks_are_listed(task: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tasks", "--folder", str(task.parent), "--json"]) == 0
    [row] = json.loads(capsys.readouterr().out)
    assert (row["name"], row["adapter"], row["reducer"], row["classes"]) == ("digits", "adaptformer", "bdm", 10)
    assert row["bytes"] == task.stat().st_size
    assert row["accuracy"] == Task.load(task).header.provenance["test"]["accuracy"]
    assert main(["tasks", "--folder", str(task.parent)]) == 0
    heading, line = capsys.readouterr().out.splitlines()
    assert heading.split()[:4] == ["name", "adapter", "reducer", "classes"]
    assert line.split()[:4] == ["digits", "adaptformer", "bdm", "10"]


def test_a_file_that_is_no_task_is_named_and_the_others_are_listed(
    task: Path, backbone_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {"a": b"damaged", "b": backbone_file.read_bytes(), "c": task.read_bytes(), "digits": task.read_bytes()}
    for name, content in files.items():
        (tmp_path / f"{name}.safetensors").write_bytes(content)
    assert main(["tasks", "--folder", str(tmp_path), "--json"]) == 1
    captured = capsys.readouterr()
    assert [row["name"] for row in json.loads(captured.out)] == ["digits", "digits"]
    damaged, foreign, misnamed = captured.err.splitlines()
    assert damaged.startswith(f"fpet: {tmp_path}/a.safetensors: not a complete safetensors file")
    assert foreign == f"fpet: {tmp_path}/b.safetensors: this is a backbone, not a task"
    assert (
        misnamed
        == f"fpet: {tmp_path}/c.safetensors: holds the task 'digits'; a service takes it only in a file of that name"
    )


def test_the_embedded_tasks_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tasks"]) == 0
    assert capsys.readouterr().out.startswith("name")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (["--data", "cifar"], "no data 'cifar'"),
        (["--name", "Not/A/Name"], "name 'Not/A/Name' is not 1 to 64"),
        (["--adapter-arguments", "rank=8"], "adaptformer has no argument 'rank'"),
        (["--reducer-arguments", "block=9"], "block = 9"),
        (["--adapter-arguments", "dropout=2"], "adaptformer: dropout = 2 should be in [0, 1)"),
        (["--reducer-arguments", "dropout=-1"], "bdm: dropout = -1 should be in [0, 1)"),
        (["--adapter-arguments", f"dim={10**18}"], f"adaptformer: the arguments dim = {10**18} make no model: "),
        (["--adapter", "fact-tt", "--adapter-arguments", f"rank={10**30}"], f"fact-tt: the arguments rank = {10**30}"),
        (["--adapter", "vpt-deep", "--adapter-arguments", f"prompts={10**18}"], "vpt-deep: the arguments prompts ="),
        (["--adapter", "repadapter", "--adapter-arguments", "dim=-8"], "dim = -8: the hidden width is at least 1"),
        (["--adapter-arguments", f"scale={10**30}"], f"adaptformer: scale = {10**30} is not of type float"),
        (["--lr", "inf"], "lr = inf should be finite"),
        (["--lr", "0"], "lr = 0.0 should be above 0"),
        (["--seed", "-1"], "seed = -1 should not be below 0"),
        (["--lr", "1e-6"], "min_lr = 1e-05 should not be above lr = 1e-06"),
        (
            ["--lr", "1e-6", "--min-lr=0", "--warmup-lr=1e-5", "--warmup-epochs=1"],
            "warmup_lr = 1e-05 should not be above lr = 1e-06",
        ),
        (["--seed", str(2**64 - 1)], f"seed = {2**64 - 1} should be below 2**63"),
        (["--seed", "9" * 20], f"seed = {'9' * 20} should be below 2**63"),
        (["--batch-size", "2000"], "fewer than one batch of 2000; give a smaller batch size"),
        (["--device", "abacus"], "the device 'abacus' cannot be used: there is none of that name, but cpu,"),
        (["--device", "meta"], "the device 'meta' cannot be used"),
        (["--backbone", "none.safetensors"], "none.safetensors"),
        (["--data-folder", "/"], "nothing is read from /"),
    ],
)
def test_wrong_input_is_one_line(
    wrong: list[str], message: str, backbone_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*train(backbone_file, tmp_path / "digits.safetensors"), *wrong]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("fpet: ")
    assert captured.err.count("\n") == 1
    assert message in captured.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "name", ["digits.checkpoint", "digits.csv", "digits", ".safetensors", "digits.safetensors.bak"]
)
def test_an_output_that_no_command_would_take_for_a_task_is_refused(
    name: str, backbone_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(train(backbone_file, tmp_path / name)) == 2
    assert f"{tmp_path / name}: a task file's name ends in .safetensors" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_finished_task_is_not_overwritten(
    task: Path, backbone_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = task.read_bytes()
    assert main(train(backbone_file, task)) == 2
    said = capsys.readouterr().err
    assert "delete it or name another --output; to train a task anew that is served, name another folder's" in said
    assert task.read_bytes() == before


@pytest.mark.parametrize("wrong", [["--task", "nothing"], ["--task", "nothing.safetensors"]])
def test_a_task_that_is_not_there(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", *wrong]) == 2
    assert capsys.readouterr().err.startswith("fpet: ")


def test_a_task_and_a_backbone_that_are_swapped_are_told_apart(
    task: Path, backbone_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["evaluate", "--task", str(backbone_file)]) == 2
    assert main(["evaluate", "--task", str(task), "--backbone", str(task)]) == 2
    assert capsys.readouterr().err == (
        f"fpet: {backbone_file}: this is a backbone, not a task\nfpet: {task}: this is a task, not a backbone\n"
    )


def test_a_task_that_cannot_be_written_need_not_be_trained_again(
    backbone_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [*train(backbone_file, output := tmp_path / "digits.safetensors"), "--epochs", "1"]

    def full(path: Path, *_: object) -> None:
        raise TaskError(f"{path}: cannot be written: No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr("fpet.training.fit.save_task", full)
        assert main(command) == 2
    assert "goes on after epoch" not in capsys.readouterr().err
    assert main(command) == 0
    assert "goes on after epoch 1 of 1" in capsys.readouterr().err
    assert Task.load(output).header.name == "digits"
