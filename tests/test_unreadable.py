"""Paths that the system refuses are told in one line, by every command: too long, in a loop, or not permitted."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pictures
import pytest
from picture_files import classes
from serving import Files, Serving

from fpet.cli import main
from fpet.data import load_dataset
from fpet.errors import DataError

pytestmark = pytest.mark.usefixtures("one_thread")

LONG = "n" * 300
READING = [
    "train --name a --data {wrong}",
    "train --name a --data digits --backbone {wrong}",
    "evaluate --task {wrong}.safetensors",
    "evaluate --task {task} --backbone {backbone} --data {wrong}",
    "classify {wrong} --task {task} --backbone {backbone}",
    "classify {wrong} {folder}/{wrong} --task digits --url {url}",
    "classify {wrong} --task digits --url {url} --key-file {wrong}",
    "tasks --folder {wrong}",
    "show {wrong}",
    "convert {wrong} --output {folder}/a",
    "visualize {wrong} --task {task} --output {folder}/a.png",
    "import-backbone {wrong} --output {folder}/a.safetensors",
    "sweep {wrong} --output {folder}/a.csv",
]
WRITING = [
    "train --name a --data digits --output {folder}/{wrong}.safetensors",
    "train --name a --data digits --output {folder}/{wrong}/a.safetensors",
    "train --name {wrong} --data digits --backbone {backbone}",
    "evaluate --task {task} --backbone {backbone} --data digits --predictions {wrong}",
    "data fashion-mnist --cache {wrong}",
    "fold --task {task} --backbone {backbone} --output {wrong}",
    "convert {folder} --output {wrong}",
    "visualize {folder} --task {task} --output {folder}/{wrong}.png",
    "import-backbone {backbone} --output {folder}/{wrong}.safetensors",
    "sweep {plan} --output {folder}/{wrong}.csv --backbone {backbone}",
]


@pytest.fixture
def words(small_files: Files, service: Serving, tmp_path: Path) -> dict[str, str]:
    plan = tmp_path / "plan.toml"
    plan.write_text('data = ["digits"]\nseeds = [0]\n[[method]]\nname = "a"\n')
    task, url = small_files.tasks / "digits.safetensors", str(service.client.base_url)
    folder = tmp_path / "folder"
    folder.mkdir()
    named = {"task": task, "backbone": small_files.backbone, "plan": plan, "folder": folder}
    return {**{name: str(path) for name, path in named.items()}, "url": url}


@pytest.mark.parametrize(
    ("command", "wrong"), [*((one, LONG) for one in (*READING, *WRITING)), *((one, "loop") for one in READING)]
)
def test_a_path_that_cannot_be_looked_at_is_one_line(
    command: str, wrong: str, words: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    here = Path(words["folder"])
    monkeypatch.chdir(here)
    for name in ("loop", "loop.safetensors"):
        Path(name).symlink_to(name)
    code = main(command.format(wrong=wrong, **words).split())
    captured = capsys.readouterr()
    images = sum(word.endswith("{wrong}") for word in command.partition(" --")[0].split()[1:])
    if command.startswith("classify") and "key-file" not in command:
        assert (code, captured.err.count("\n")) == (1, images)
    else:
        assert (code, captured.err.count("\n")) == (2, 1)
    assert captured.err.startswith("fpet: ")


@pytest.mark.parametrize("entry", ['"{wrong}"', '{{ folder = "{wrong}" }}'])
def test_a_name_in_a_plan_that_is_too_long_is_one_line(
    entry: str, words: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    plan = Path(words["plan"])
    plan.write_text(plan.read_text().replace('"digits"', entry.format(wrong=LONG)))
    assert main(["sweep", str(plan), "--output", f"{plan}.csv", "--backbone", words["backbone"]]) == 2
    assert capsys.readouterr().err == f"fpet: {plan}: {LONG}: cannot be looked for: File name too long\n"


def test_a_picture_whose_name_is_too_long_is_named_with_its_line(tmp_path: Path) -> None:
    classes(tmp_path, {"a": 4, "b": 4})
    for name, i in (("train800", 0), ("val200", 1), ("test", 2)):
        (tmp_path / f"{name}.txt").write_text(f"a/0{i}.png 0\nb/0{i}.png 1\n")
    with (tmp_path / "test.txt").open("a") as file:
        file.write(f"{LONG} 0\n")
    with pytest.raises(
        DataError, match=rf"1 of 7 pictures cannot be read .*{LONG} \(test.txt, line 3\): File name too"
    ):
        load_dataset(str(tmp_path))


WITHOUT_RIGHTS = ["setpriv", "--bounding-set=-all"] if os.geteuid() == 0 else []  # root has them else


MODES = {"unlisted": 0o300, "unentered": 0o600}
COMMANDS = ["tasks --folder {0}", "classify {0} --task digits", "train --name a --data {0}", "convert {0} --output a"]
# Does each in one process: to start is what takes long.
_EACH = """
import contextlib, io, json, sys
from fpet.cli import main
for command in json.load(sys.stdin):
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
        code = main(command.split())
    print(json.dumps([command, [code, errors.getvalue()]]))
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str]]:
    """The code of each command on each folder, and what it said, as one who has no right to all files."""
    here = tmp_path_factory.mktemp("here")
    for name in MODES:
        classes(here / name, {"a": 1, "b": 1})
        shutil.copy(here / name / "a" / "00.png", here / name / "a.safetensors")
    asked = json.dumps([command.format(name) for command in COMMANDS for name in MODES])
    try:
        for name, mode in MODES.items():
            (here / name).chmod(mode)
        words = [*WITHOUT_RIGHTS, sys.executable, "-c", _EACH]
        done = subprocess.run(words, input=asked, capture_output=True, text=True, check=True, cwd=here)
    finally:
        for name in MODES:
            (here / name).chmod(0o700)
    return dict(map(json.loads, done.stdout.splitlines()))


@pytest.mark.skipif(bool(WITHOUT_RIGHTS) and shutil.which("setpriv") is None, reason="root may read everything")
@pytest.mark.parametrize("folder", MODES)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_folder_without_permission_is_one_line(command: str, folder: str, told: dict[str, tuple[int, str]]) -> None:
    code, errors = told[command.format(folder)]
    said = errors.splitlines()
    assert said
    assert all(line.startswith("fpet: ") for line in said)
    assert folder in said[0]
    assert code in (1, 2)


def test_a_working_folder_that_was_removed_is_one_line(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    words = ["sh", "-c", 'rmdir "$PWD" && exec "$@"', "sh", sys.executable, "-m", "fpet.cli", "methods"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=folder)
    assert (done.returncode, done.stderr) == (2, "fpet: the working folder: No such file or directory\n")


@pytest.mark.skipif(bool(WITHOUT_RIGHTS) and shutil.which("setpriv") is None, reason="root may enter everything")
def test_a_working_folder_that_processes_may_not_enter_is_one_line(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    serve = [sys.executable, "-m", "fpet.cli", "serve", "--processes", "2", "--port", "0"]
    words = [*WITHOUT_RIGHTS, "sh", "-c", 'chmod 0 "$PWD" && exec "$@"', "sh", *serve]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=folder)
    finally:
        folder.chmod(0o700)
    reason = "--processes: the working folder cannot be entered: Permission denied"
    assert (done.returncode, done.stderr) == (2, f"fpet: {reason}\n")


@pytest.mark.parametrize("way", ["in process", "by HTTP"])
def test_a_pipe_is_not_waited_for(
    way: str, words: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe, image = tmp_path / "pipe.png", tmp_path / "image.png"
    os.mkfifo(pipe)
    image.write_bytes(pictures.png())
    file = ["--task", words["task"], "--backbone", words["backbone"]]
    options = file if way == "in process" else ["--task", "digits", "--url", words["url"]]
    assert main(["classify", str(image), str(pipe), str(image), *options]) == 1
    captured = capsys.readouterr()
    assert [line.split("\t")[0] for line in captured.out.splitlines()] == [str(image)] * 2
    assert captured.err.startswith("fpet: ")
    assert captured.err.endswith(f"{pipe}: this is no file\n")
    assert main(["visualize", str(pipe), *file, "--output", str(tmp_path / "drawn.png")]) == 2
