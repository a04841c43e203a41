"""`fpet classify`: the same lines from the engine in this process and from a service over HTTP."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from pathlib import Path
from typing import Any

import pictures
import pytest
import torch
from peer import Answer, peer
from serving import Files, Serving, write_task
from small import small_backbone, small_header

from fpet.cli import main
from fpet.embedded import embedded
from fpet.task import Task, save_tensors

pytestmark = pytest.mark.usefixtures("one_thread")

WAYS = ["in process", "by HTTP"]


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """More than a batch of them."""
    folder = tmp_path_factory.mktemp("images")
    for i in range(18):
        (folder / f"{i:02}.png").write_bytes(pictures.png(i))
    (folder / "90.jpg").write_bytes(pictures.rotated())
    return [str(path) for path in sorted(folder.iterdir())]


@pytest.fixture
def ways(small_files: Files, service: Serving) -> dict[str, list[str]]:
    """How to have the task `digits` answer, as options."""
    file = small_files.tasks / "digits.safetensors"
    return {
        "in process": ["--task", str(file), "--backbone", str(small_files.backbone)],
        "by HTTP": ["--task", "digits", "--url", str(service.client.base_url)],
    }


def rows(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize("tokens", ["reduced", "full"])
def test_both_ways_say_the_same(
    tokens: str, images: list[str], ways: dict[str, list[str]], small_files: Files, capsys: pytest.CaptureFixture[str]
) -> None:
    found = []
    for way in WAYS:
        assert main(["classify", *images, *ways[way], "--json", "--top-k", "10", "--tokens", tokens]) == 0
        found.append(rows(capsys))
    ours, theirs = found
    assert [row["file"] for row in ours] == images
    digest = Task.load(small_files.tasks / "digits.safetensors").digest
    for one, other in zip(ours, theirs, strict=True):
        assert (one["task"], one["digest"]) == ("digits", digest)
        assert one["tokens"] == {"in": 17, "out": 9 if tokens == "reduced" else 17}
        probabilities = [
            [prediction.pop("probability") for prediction in sorted(row["predictions"], key=lambda p: p["index"])]
            for row in (one, other)
        ]
        assert probabilities[0] == pytest.approx(probabilities[1], abs=1e-5)
        assert sum(probabilities[0]) == pytest.approx(1)
        assert one == other


@pytest.mark.parametrize("way", WAYS)
def test_a_line_has_the_file_and_its_labels(
    way: str, images: list[str], ways: dict[str, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["classify", images[0], *ways[way], "--json", "--top-k", "2"]) == 0
    first, second = rows(capsys)[0]["predictions"]
    assert main(["classify", images[0], *ways[way], "--top-k", "2"]) == 0
    expected = [f"{one['label']}\t{one['probability']:.4f}" for one in (first, second)]
    assert capsys.readouterr().out == "\t".join([images[0], *expected]) + "\n"
    assert main(["classify", images[0], *ways[way]]) == 0
    assert capsys.readouterr().out == f"{images[0]}\t{expected[0]}\n"


def test_a_label_keeps_to_its_line(
    images: list[str], small_files: Files, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    backbone, file = small_backbone(), tmp_path / "digits.safetensors"
    header = dataclasses.replace(small_header(backbone), labels=("two\nlines", "two\tfields", "\x1b[2J", "\u05d0"))
    write_task(file, header, backbone)
    options = ["--task", str(file), "--backbone", str(small_files.backbone), "--top-k", "4"]
    assert main(["classify", images[0], *options]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert set(line.split("\t")[1::2]) == {r"'two\nlines'", r"'two\tfields'", r"'\x1b[2J'", "\u05d0"}


@pytest.mark.parametrize("json_lines", [False, True])
def test_an_answer_that_is_not_finite_is_an_error_of_its_image(
    json_lines: bool, images: list[str], small_files: Files, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task, file = Task.load(small_files.tasks / "digits.safetensors"), tmp_path / "large.safetensors"
    large = {**task.tensors, "head.weight": torch.full_like(task.tensors["head.weight"], 3e38)}
    save_tensors(file, task.header, large, small_backbone())
    command = ["classify", images[0], "--task", str(file), "--backbone", str(small_files.backbone)]
    assert main([*command, *["--json"] * json_lines]) == 1
    captured = capsys.readouterr()
    said = f"{images[0]}: the task's answers in float32 are not finite"
    if json_lines:
        assert json.loads(captured.out) == {"file": images[0], "error": said}
    else:
        assert captured == ("", f"fpet: {said}\n")


@pytest.mark.parametrize("way", WAYS)
def test_an_image_that_fails_is_named_and_the_others_are_answered(
    way: str, images: list[str], ways: dict[str, list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad, missing = tmp_path / "bad.png", tmp_path / "missing.png"
    bad.write_text("no picture")
    mixed = [images[0], str(bad), images[1], str(missing)]
    assert main(["classify", *mixed, *ways[way]]) == 1
    captured = capsys.readouterr()
    assert [line.split("\t")[0] for line in captured.out.splitlines()] == images[:2]
    (about_bad, about_missing) = captured.err.splitlines()
    assert about_bad.startswith("fpet: ")
    assert str(bad) in about_bad
    assert str(missing) in about_missing
    assert main(["classify", *mixed, *ways[way], "--json"]) == 1
    captured = capsys.readouterr()
    found = [json.loads(line) for line in captured.out.splitlines()]
    assert [(row["file"], "error" in row) for row in found] == [(file, file not in images) for file in mixed]
    assert not captured.err
    assert main(["classify", str(bad), *ways[way]]) == 1
    assert not capsys.readouterr().out


def test_the_embedded_task_needs_nothing_but_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    samples = sorted(map(str, (embedded() / "samples" / "digits").glob("[57]-*.png")))
    found = []
    for precision in ("float32", "bfloat16"):
        assert main(["classify", *samples, "--task", "digits", "--precision", precision, "--json"]) == 0
        best = [row["predictions"][0] for row in rows(capsys)]
        assert [one["label"] for one in best] == ["5", "7"]
        found.append([one["probability"] for one in best])
    exact, rounded = found
    assert exact != rounded
    assert exact == pytest.approx(rounded, abs=0.02)


def test_the_key_comes_from_a_file(images: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key = tmp_path / "key"
    key.write_text("\ufeffcorrect horse battery\n")  # some editors put a mark of UTF-8 first
    refusal = {"error": "the key is wrong", "error_type": "forbidden"}
    with peer([Answer(403, refusal)]) as there:
        arguments = ["classify", images[0], "--task", "digits", "--url", there.url, "--key-file", str(key)]
        assert main(arguments) == 2
    assert there.received[0].headers["authorization"] == "Bearer correct horse battery"
    assert capsys.readouterr().err == "fpet: the key is wrong\n"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (["--task", "nothing"], "no embedded task 'nothing'"),
        (["--task", "nothing", "--url", "SERVICE"], "no task 'nothing'"),
        (["--task", "digits", "--top-k", "11"], "the task digits has 10 labels"),
        (["--task", "digits", "--top-k", "11", "--url", "SERVICE"], "the task digits has 10 labels"),
        (["--task", "runs/digits.safetensors", "--url", "SERVICE"], "a service knows its tasks by name"),
        (["--task", "digits", "--url", "localhost:8000"], "no address of a service"),
        (["--task", "digits", "--url", "SERVICE", "--device", "cuda"], "--device: with --url the service chooses it"),
        (["--task", "digits", "--url", "SERVICE", "--precision", "bfloat16"], "--precision: with --url"),
        (["--task", "digits", "--url", "SERVICE", "--backbone", "b.safetensors"], "--backbone: with --url"),
        (["--task", "digits", "--key-file", "key"], "name its --url"),
        (["--task", "digits", "--url", "SERVICE", "--key-file", "missing"], "missing: cannot be read"),
    ],
)
def test_wrong_input_is_one_line(
    wrong: list[str], message: str, images: list[str], service: Serving, capsys: pytest.CaptureFixture[str]
) -> None:
    address = str(service.client.base_url)
    assert main(["classify", images[0], *(address if word == "SERVICE" else word for word in wrong)]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("fpet: ")
    assert captured.err.count("\n") == 1
    assert message in captured.err
    assert not captured.out


@pytest.mark.parametrize("way", WAYS)
def test_of_a_folder_the_files_in_it_are_classified(
    way: str, images: list[str], ways: dict[str, list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("b.png", "a.PNG", ".hidden.png", "Thumbs.db", "deeper/c.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(pictures.png(1))
    assert main(["classify", images[0], str(tmp_path), images[1], *ways[way], "--json"]) == 0
    named = [images[0], str(tmp_path / "a.PNG"), str(tmp_path / "b.png"), images[1]]
    assert [row["file"] for row in rows(capsys)] == named
    (tmp_path / "notes.txt").write_text("no picture")
    assert main(["classify", str(tmp_path), *ways[way]]) == 1
    captured = capsys.readouterr()
    assert len(captured.out.splitlines()) == 2
    assert str(tmp_path / "notes.txt") in captured.err


@pytest.mark.parametrize("way", WAYS)
def test_a_folder_without_images_is_named(
    way: str, images: list[str], ways: dict[str, list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "deeper").mkdir()
    (tmp_path / ".hidden.png").write_bytes(pictures.png(1))
    assert main(["classify", images[0], str(tmp_path), *ways[way]]) == 2
    said = f"fpet: {tmp_path}: there is no image directly in this folder; name one that has some\n"
    assert capsys.readouterr() == ("", said)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every folder")
def test_a_folder_that_cannot_be_read_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tmp_path.chmod(0o300)
    assert main(["classify", str(tmp_path), "--task", "digits"]) == 2
    assert capsys.readouterr().err == f"fpet: {tmp_path}: the folder cannot be read: Permission denied\n"


def test_what_a_service_has_answered_is_told_before_it_is_asked_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    named = [tmp_path / f"{i:02}.png" for i in range(80)]
    for path in named:
        path.write_bytes(pictures.png())
    answer = {
        "task": "digits",
        "digest": "d" * 64,
        "generation": 1,
        "predictions": [[{"label": "5", "index": 5, "probability": 1}]] * 16,
        "tokens": {"in": 17, "out": 9},
        "timings_ms": {"decode": 1, "queue": 1, "inference": 1, "total": 3},
    }
    refusal = {"error": "the key is wrong", "error_type": "forbidden"}
    with peer([*[Answer(200, answer)] * 4, Answer(403, refusal)]) as there:
        assert main(["classify", str(tmp_path), "--task", "digits", "--url", there.url]) == 2
    captured = capsys.readouterr()
    assert [line.split("\t")[0] for line in captured.out.splitlines()] == [str(path) for path in named[:64]]
    assert captured.err == "fpet: the key is wrong\n"


def test_asking_a_service_needs_httpx(
    images: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in sys.modules if name.startswith("fpet.client")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "httpx", None)  # how Python marks what cannot be imported
    assert main(["classify", images[0], "--task", "digits", "--url", "http://127.0.0.1:8000"]) == 2
    assert "asking a service needs httpx" in capsys.readouterr().err
