"""`fpet show`: a task file says all of itself."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from serving import write_task
from small import small_backbone, small_header

from fpet.cli import main
from fpet.embedded import task_path
from fpet.task import Task


def test_a_task_is_shown_whole(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "digits", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    task = Task.load(task_path("digits"))
    assert (shown["digest"], shown["bytes"], shown["file"]) == (task.digest, task.size, str(task.path))
    assert {name: shown[name] for name in json.loads(task.header.to_json())} == json.loads(task.header.to_json())
    assert {name: tuple(one["shape"]) for name, one in shown["tensors"].items()} == {
        name: tuple(tensor.shape) for name, tensor in task.tensors.items()
    }
    assert main(["show", str(task_path("digits"))]) == 0
    lines = dict(line.split("  ", 1) for line in capsys.readouterr().out.splitlines())
    assert lines["labels"].strip() == ", ".join("0123456789")
    assert lines["tensors.head.weight"].strip() == "float32 [10, 192]"
    blocks = [name for name in lines if name.startswith("tensors.adapter")]
    assert [int(name.split(".")[3]) for name in blocks] == sorted(int(name.split(".")[3]) for name in blocks)


def test_a_file_does_not_steer_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    backbone = small_backbone()
    header = dataclasses.replace(small_header(backbone), provenance={"note": "\x1b[2J\nname  other"})
    write_task(tmp_path / "digits.safetensors", header, backbone)
    assert main(["show", str(tmp_path / "digits.safetensors")]) == 0
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert r"'\x1b[2J\nname  other'" in shown


def test_what_is_no_task_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad.safetensors").write_bytes(b"damaged")
    assert main(["show", str(tmp_path / "bad.safetensors")]) == 2
    assert capsys.readouterr().err.startswith(f"fpet: {tmp_path}/bad.safetensors: not a complete safetensors file")
