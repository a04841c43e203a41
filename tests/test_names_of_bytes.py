"""Names of files that are no UTF-8 are printed, and refused before a training that could not write them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from picture_files import classes
from serving import Files

from fpet.cli import main

pytestmark = pytest.mark.usefixtures("one_thread")

ODD = os.fsdecode(b"pets\xe9")
STRICT = {**os.environ, "PYTHONIOENCODING": "utf-8:strict"}  # as in most languages, not in that of C


def test_a_file_whose_name_is_no_text_is_printed(small_files: Files, tmp_path: Path) -> None:
    folder = classes(tmp_path, {ODD: 2}) / ODD
    task = ["--task", str(small_files.tasks / "digits.safetensors"), "--backbone", str(small_files.backbone)]
    command = [sys.executable, "-m", "fpet.cli", "classify", str(folder), *task]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=STRICT)
    assert (done.returncode, done.stderr) == (0, "")
    names = [rf"{tmp_path}/pets\udce9/0{i}.png" for i in range(2)]
    assert [line.split("\t")[0] for line in done.stdout.splitlines()] == names


def test_data_whose_name_is_no_text_are_refused_before_they_are_trained_on(
    backbone_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, output = classes(tmp_path / ODD, {"a": 10, "b": 10}), tmp_path / "out" / "a.safetensors"
    train = ["train", "--name", "a", "--data", str(data), "--epochs", "1", "--batch-size", "4"]
    assert main([*train, "--backbone", str(backbone_file), "--output", str(output)]) == 2
    said = r"the name of the data is to stand in the task file, but it is no text in Unicode: 'pets\udce9'"
    assert capsys.readouterr().err.endswith(f"fpet: {said}; rename the folder\n")
    assert not list(output.parent.iterdir())
