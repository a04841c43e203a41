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
from fpet.cli import COMMANDS, main
from fpet.commands.options import keyword_arguments
from fpet.commands.table import table
from fpet.embedded import embedded
from fpet.training.recipe import Recipe


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out == f"fpet {fpet.__version__}\n"
    assert re.fullmatch(r"\d+\.\d+\.\d+", fpet.__version__)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["methods", "--jsno"], "fpet methods: error: unrecognized arguments: --jsno; is --json meant?\n"),
        (["methods", "--nothing=1", "more"], "fpet methods: error: unrecognized arguments: --nothing=1 more\n"),
        (["--jsno", "methods"], "fpet: error: unrecognized arguments: --jsno\n"),
    ],
)
def test_an_option_that_there_is_not_is_refused_by_its_command(
    given: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(given)
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert told.startswith(f"usage: {said.partition(':')[0]} ")
    assert told.endswith(f"\n{said}")


def test_commands_of_a_folder_that_is_not_installed_say_so() -> None:
    command = [sys.executable, "-S", "-m", "fpet.cli", "--version"]  # without site-packages
    done = subprocess.run(command, cwd=Path(fpet.__file__).parents[1], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "fpet 0+uninstalled\n", "")


_LISTED = """
import sys
from fpet.cli import main
try:
    main(sys.argv[1:])
finally:
    print([name for name in ("torch", "timm", "numpy", "PIL") if name in sys.modules], file=sys.stderr)
"""


@pytest.mark.parametrize(("given", "code"), [(["--help"], 0), (["-h"], 0), ([], 2), (["trian"], 2)])
def test_commands_are_listed_without_importing_them(given: list[str], code: int) -> None:
    done = subprocess.run([sys.executable, "-c", _LISTED, *given], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (code, "[]")
    if code == 0:
        assert all(f"    {name} " in done.stdout or f"    {name}\n" in done.stdout for name in (*COMMANDS, "serve"))


@pytest.mark.parametrize(("given", "told"), [("tasks", "digits"), ("show digits", "labels"), ("methods", "lora")])
def test_what_needs_no_backbone_does_not_wait_for_timm(given: str, told: str) -> None:
    command = [sys.executable, "-c", _LISTED, *given.split()]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert told in done.stdout
    assert "timm" not in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("command", ["tasks", "--help"])
def test_an_output_that_cannot_be_written_is_one_line(command: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "fpet.cli", command],
            env=environment,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (done.returncode, done.stderr) == (2, "fpet: the output cannot be written: No space left on device\n")


# Tells where its standard input, output and error lead once a command has ended.
_LEADS = """
import os, sys
from fpet.cli import main
code = main(["show", "nothing"])
with open(sys.argv[1], "w") as file:
    print(code, *[os.readlink(f"/proc/self/fd/{number}") for number in range(3)], file=file)
"""


def test_what_is_closed_leads_nowhere(tmp_path: Path) -> None:
    """Else a file or a socket would be standard error, and have in it what libraries say."""
    command = [sys.executable, "-c", _LEADS, str(tmp_path / "told")]
    subprocess.run(["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *command], check=True)
    assert (tmp_path / "told").read_text() == "2 /dev/null /dev/null /dev/null\n"


@pytest.mark.parametrize(("command", "code"), [(["tasks"], 0), (["show", "nothing"], 2)])
def test_a_closed_output_is_no_error(command: list[str], code: int) -> None:
    """And what would be said on standard error, if that is closed, is no output."""
    closed = ">&-" if code == 0 else "2>&-"
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-m", "fpet.cli", *command],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "")


def test_nothing_is_said_to_who_reads_no_further() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as pipe:
        done = subprocess.run(
            [sys.executable, "-m", "fpet.cli", "tasks"], stdout=pipe, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (done.returncode, done.stderr) == (2, "")


def test_an_unwritable_standard_error_changes_no_result() -> None:
    sample = next((embedded() / "samples" / "digits").glob("5-*.png"))
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "fpet.cli", "classify", "no.png", str(sample), "--task", "digits"],
            stdout=subprocess.PIPE,
            stderr=full,
            text=True,
            check=False,
        )
    assert (done.returncode, len(done.stdout.splitlines())) == (1, 1)


def test_control_characters_in_messages_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "no\nsuch\x1b[31m\udcfffile.safetensors"]) == 2
    assert "no\\nsuch\\x1b[31m\\udcfffile.safetensors: " in capsys.readouterr().err


def test_a_table_keeps_to_its_lines() -> None:
    assert table([{"label": "a\nb", "share": 0.5}], ["label", "share"]) == "label   share\n'a\\nb'  0.5000"


def test_an_output_that_may_not_grow_is_one_line(tmp_path: Path) -> None:
    limit = "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (9, 9))"
    script = f"{limit}; from fpet.cli import main; sys.exit(main(['tasks']))"
    with (tmp_path / "output").open("w") as output:
        done = subprocess.run(
            [sys.executable, "-c", script], stdout=output, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (done.returncode, done.stderr) == (2, "fpet: the output cannot be written: File too large\n")


def test_where_nothing_can_be_written_for_a_time_it_is_said() -> None:
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))"
    script = f"{limit}; from fpet.cli import main; main(['tasks'])"
    done = subprocess.run([sys.executable, "-c", script], stderr=subprocess.PIPE, text=True, check=False)
    assert done.stderr.startswith("fpet: no folder for temporary files; TMPDIR may name one: ")


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
        ("evaluate", ["--task", "--data", "--backbone", "--baseline", "--precision", "--json"]),
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
            default = {"warmup_epochs": "a tenth of --epochs, at most 10, none below 20 epochs"}.get(
                item.name, item.default
            )
            assert re.search(rf"--{item.name.replace('_', '-')} [A-Z]+ [^()]*\(default: {default}\)", text)
