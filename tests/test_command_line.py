"""What holds for all commands: version, help, the form of arguments, and an output that cannot be written."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import fpet
from fpet.cli import main
from fpet.commands.options import keyword_arguments
from fpet.recipe import Recipe


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out == f"fpet {fpet.__version__}\n"
    assert re.fullmatch(r"\d+\.\d+\.\d+", fpet.__version__)


def test_an_output_that_cannot_be_written_is_one_line() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "fpet.cli", "tasks"], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (done.returncode, done.stderr) == (2, "fpet: the output cannot be written: No space left on device\n")


def test_nothing_is_said_to_who_reads_no_further() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as pipe:
        done = subprocess.run(
            [sys.executable, "-m", "fpet.cli", "tasks"], stdout=pipe, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (done.returncode, done.stderr) == (2, "")


def test_arguments_are_numbers_words_and_lists() -> None:
    parsed = keyword_arguments("dim=8,scale=0.1,block=4+8,refine=false,name=x")
    assert parsed == {"dim": 8, "scale": 0.1, "block": [4, 8], "refine": False, "name": "x"}


@pytest.mark.parametrize("wrong", ["dim", "dim=8,dim=4", "=8"])
def test_malformed_arguments_are_refused(wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["train", "--data", "digits", "--name", "a", "--adapter-arguments", wrong])
    assert "NAME=VALUE" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("train", ["--data", "--name", "--output", "--adapter", "--adapter-arguments", "--reducer", "--backbone"]),
        ("evaluate", ["--task", "--data", "--backbone", "--baseline", "--json"]),
        ("tasks", ["--folder", "--json"]),
    ],
)
def test_help_names_options_and_defaults(command: str, options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main([command, "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert all(f"{option} " in text for option in options)
    if command == "train":
        for item in dataclasses.fields(Recipe):
            assert re.search(rf"--{item.name.replace('_', '-')} [A-Z]+ [^()]*\(default: {item.default}\)", text)
