"""Evaluating a task on pictures that it was not trained on: a folder with test/ alone, and classes that are others."""

from __future__ import annotations

import csv
import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from picture_files import classes, picture, truncate
from serving import write_task
from small import ADAPTFORMER, small_backbone, small_header

from fpet.cli import main
from fpet.data import Reading, load_dataset
from fpet.errors import DataError
from fpet.header import Method

pytestmark = pytest.mark.usefixtures("one_thread")

Evaluate = Callable[..., list[str]]


@pytest.fixture
def evaluate(backbone_file: Path, tmp_path: Path) -> Evaluate:
    """The command that evaluates a task with these classes and random weights."""

    def command(*labels: str) -> list[str]:
        header = dataclasses.replace(small_header(small_backbone()), name="mine", labels=labels)
        write_task(tmp_path / "mine.safetensors", header, small_backbone())
        files = ["--task", str(tmp_path / "mine.safetensors"), "--backbone", str(backbone_file)]
        return ["evaluate", *files, "--data", str(tmp_path / "new")]

    return command


def printed(report: dict[str, float]) -> list[tuple[str, float]]:
    """The numbers in the lines of an evaluation, and how they are called there."""
    ways = ("", "_unreduced")
    return [
        pair
        for way in ways
        for pair in (("accuracy", report[f"accuracy{way}"]), ("balanced", report[f"balanced_accuracy{way}"]))
    ]


def test_what_is_wrong_with_the_model_is_said_before_pictures_are_read(
    evaluate: Evaluate, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of many pictures that takes minutes."""
    classes(tmp_path / "new" / "test", {"ant": 2, "cow": 2})
    truncate(tmp_path / "new" / "test" / "cow" / "00.png")
    command = evaluate("ant", "cow")
    assert main([*command, "--backbone", str(tmp_path / "none.safetensors")]) == 2
    assert capsys.readouterr().err.startswith(f"fpet: {tmp_path / 'none.safetensors'}")
    assert main(command) == 2
    assert "00.png" in capsys.readouterr().err


def test_all_of_a_test_alone_is_tested(evaluate: Evaluate, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    classes(tmp_path / "new" / "test", {"ant": 7, "cow": 4})
    command = evaluate("ant", "bee", "cow")
    assert main(command) == 2
    lacking = "the classes of new are not those of the task mine: it has no bee (an empty folder of each will do)"
    assert capsys.readouterr().err == f"fpet: {lacking}\n"
    (tmp_path / "new" / "test" / "bee").mkdir()
    assert main([*command, "--json", "--per-class"]) == 0
    captured = capsys.readouterr()
    report = json.loads(captured.out)
    assert (report["images"], [one["images"] for one in report["classes"]]) == (11, [7, 0, 4])
    ant, _, cow = report["classes"]
    for name, matrix in (("accuracy", "confusion"), ("accuracy_unreduced", "confusion_unreduced")):
        assert report[f"balanced_{name}"] == pytest.approx((ant[name] + cow[name]) / 2)
        assert [sum(row) for row in report[matrix]] == [7, 0, 4]
        assert report[matrix][0][0] / 7 == ant[name]
    assert report["labels"] == ["ant", "bee", "cow"]
    assert main(command) == 0
    lines = [f"{label} {value:.4f}  with" for label, value in printed(report)]
    assert [line[: len(lines[0])] for line in capsys.readouterr().out.splitlines()[1:5]] == lines
    assert "trained on" not in captured.err
    truncate(tmp_path / "new" / "test" / "ant" / "00.png")
    assert main(command) == 2
    assert "1 of 11 pictures cannot be read" in capsys.readouterr().err
    assert main([*command, "--skip-broken"]) == 0
    assert "mine on 10 test images of new" in capsys.readouterr().out


def test_a_task_without_token_reduction_has_one_accuracy(
    backbone_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    header = small_header(small_backbone(), ADAPTFORMER, Method("none"))
    write_task(tmp_path / "digits.safetensors", header, small_backbone())
    command = ["evaluate", "--task", str(tmp_path / "digits.safetensors"), "--backbone", str(backbone_file)]
    assert main([*command, "--data", "digits"]) == 0
    _, *lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["accuracy", "balanced", "error"]
    assert all("without token reduction" in line for line in lines)
    assert lines[0].endswith("(17 -> 17 tokens)")


def test_a_test_alone_fits_no_baseline(evaluate: Evaluate, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    classes(tmp_path / "new" / "test", {"ant": 2, "bee": 2})
    assert main([*evaluate("ant", "bee"), "--baseline"]) == 2
    assert capsys.readouterr() == ("", "fpet: new has no training images to fit the baseline on\n")


def test_a_test_alone_is_loaded_only_where_it_will_do(tmp_path: Path) -> None:
    classes(tmp_path / "test", {"ant": 3, "bee": 2})
    with pytest.raises(DataError, match="has no train/: a data folder to train on has train/ and test/"):
        load_dataset(str(tmp_path))
    data = load_dataset(str(tmp_path), test_alone=True)
    assert [len(split) for split in (data.train, data.val, data.test)] == [0, 0, 5]
    assert data.train.targets.dtype == data.test.targets.dtype
    assert (data.labels, data.choices) == (("ant", "bee"), {})
    with pytest.raises(DataError, match=r"split_seed does not apply to .*, which has test/ alone"):
        load_dataset(str(tmp_path), reading=Reading(split_seed=1), test_alone=True)
    classes(tmp_path / "train", {"ant": 4, "bee": 3}, first=100)
    whole = load_dataset(str(tmp_path), test_alone=True)
    assert [len(split) for split in (whole.train, whole.val, whole.test)] == [5, 2, 5]


def test_a_test_alone_is_not_trained_on(
    backbone_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    classes(tmp_path / "new" / "test", {"ant": 3, "bee": 2})
    command = ["train", "--name", "a", "--output", str(tmp_path / "a.safetensors"), "--backbone", str(backbone_file)]
    assert main([*command, "--data", str(tmp_path / "new")]) == 2
    assert f"fpet: {tmp_path / 'new'} has no train/: a data folder to train on has" in capsys.readouterr().err


def test_a_test_that_no_seed_chooses_is_tested_whatever_the_seed(
    evaluate: Evaluate, backbone_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    classes(tmp_path / "new" / "train", {"ant": 20, "bee": 20})
    classes(tmp_path / "new" / "test", {"ant": 3, "bee": 2}, first=100)
    train = ["train", "--name", "own", "--output", str(tmp_path / "own.safetensors"), "--backbone", str(backbone_file)]
    train += ["--data", str(tmp_path / "new"), "--epochs", "1", "--batch-size", "8"]
    assert main([*train, "--split-seed", "3"]) == 0
    capsys.readouterr()
    test = ["evaluate", "--task", str(tmp_path / "own.safetensors"), *evaluate("ant", "bee")[3:], "--json"]
    for more in ([], ["--split-seed", "4"]):
        assert main([*test, *more]) == 0
        captured = capsys.readouterr()
        assert (json.loads(captured.out)["images"], captured.err) == (5, "")
    (tmp_path / "new" / "train" / "ant" / "00.png").unlink()  # other files, but of the test none
    assert main(test) == 0
    assert capsys.readouterr().err == ""


def test_of_many_other_classes_ten_of_each_are_named(
    evaluate: Evaluate, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for i in range(12):
        picture(tmp_path / "new" / "test" / f"n{i:02}" / "a.png", i)
    assert main(evaluate(*(f"t{i:02}" for i in range(100)))) == 2
    said = capsys.readouterr().err
    ten = r"{0}00, ({0}0\d, ){{9}}and {1} more"
    missing, unknown = ten.format("t", 90), ten.format("n", 2)
    assert re.search(rf"it has no {missing} \(an empty folder of each will do\); the task knows no {unknown}$", said)


def test_classes_in_another_order_are_refused(
    evaluate: Evaluate, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    classes(tmp_path / "new" / "test", {"ant": 1, "bee": 1})
    assert main(evaluate("bee", "ant")) == 2
    assert capsys.readouterr().err == "fpet: the classes of new are those of the task mine in another order\n"


def test_the_answer_to_each_file_is_written(
    evaluate: Evaluate, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    classes(tmp_path / "new" / "test", {"ant": 3, "bee, small": 2})
    written = tmp_path / "answers" / "mine.csv"
    command = [*evaluate("ant", "bee, small"), "--predictions", str(written), "--json"]
    assert main(command) == 0
    report = json.loads(capsys.readouterr().out)
    rows = list(csv.DictReader(written.read_text().splitlines()))
    assert list(rows[0]) == ["file", "label", "answer", "probability", "answer_unreduced"]
    files = [Path(row["file"]) for row in rows]
    assert files == sorted((tmp_path / "new" / "test").glob("*/*"))
    assert [file.parent.name for file in files] == [row["label"] for row in rows]
    for column, name in (("answer", "accuracy"), ("answer_unreduced", "accuracy_unreduced")):
        assert sum(row[column] == row["label"] for row in rows) == report[name] * 5
    assert all(0.5 <= float(row["probability"]) <= 1 for row in rows)
    before = written.read_bytes()
    assert main(command) == 2
    refused = f"fpet: {written}: it is there already; delete it or name another --predictions\n"
    assert capsys.readouterr() == ("", refused)
    assert written.read_bytes() == before


def test_answers_that_cannot_be_written_are_counted_all_the_same(
    evaluate: Evaluate, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    classes(tmp_path / "new" / "test", {"ant": 3, "bee": 2})
    (tmp_path / "file").touch()
    assert main([*evaluate("ant", "bee"), "--predictions", str(tmp_path / "file" / "mine.csv")]) == 2
    captured = capsys.readouterr()
    assert "mine on 5 test images of new" in captured.out
    assert "cannot be written" in captured.err


def test_answers_to_images_that_are_no_files_have_their_index(
    backbone_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    header = small_header(small_backbone(), ADAPTFORMER, Method("none"))
    write_task(tmp_path / "digits.safetensors", header, small_backbone())
    command = ["evaluate", "--task", str(tmp_path / "digits.safetensors"), "--backbone", str(backbone_file), "--json"]
    assert main([*command, "--data", "digits", "--predictions", str(tmp_path / "digits.csv")]) == 0
    report = json.loads(capsys.readouterr().out)
    heading, *rows = ((tmp_path / "digits.csv").read_text()).splitlines()
    assert heading == "file,label,answer,probability"  # nothing is reduced
    assert [row.split(",")[0] for row in rows] == [str(i) for i in range(597)]
    assert sum(row.split(",")[1] == row.split(",")[2] for row in rows) == pytest.approx(report["accuracy"] * 597)
    targets = load_dataset("digits").test.targets.tolist()
    assert [int(row.split(",")[1]) for row in rows] == targets


def test_a_trained_task_that_is_asked_for_by_name_is_pointed_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["evaluate", "--task", "mine"]) == 2
    assert "runs" not in capsys.readouterr().err
    Path("runs").mkdir()
    Path("runs/mine.safetensors").touch()
    assert main(["evaluate", "--task", "mine"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("fpet: there is no embedded task 'mine'; there are ")
    assert said.endswith("; to use the file runs/mine.safetensors, give that in its place\n")
    Path("elsewhere.safetensors").touch()
    assert main(["evaluate", "--task", "elsewhere"]) == 2
    assert capsys.readouterr().err.endswith("; to use the file elsewhere.safetensors, give that in its place\n")
    for other in ("yours", "m" * 300):  # of which the latter is no file name
        assert main(["evaluate", "--task", other]) == 2
        assert "runs" not in capsys.readouterr().err


@pytest.mark.parametrize("size", ["x", "0", "-3", "1.5", ""])
def test_a_batch_size_that_is_none_is_said_in_words(size: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["evaluate", "--task", "digits", f"--batch-size={size}"])
    said = capsys.readouterr().err.splitlines()[-1]
    assert said == f"fpet evaluate: error: argument --batch-size: {size!r} is not a whole number above 0"
