"""One process at a time makes an output: the second is refused, and one that was killed is in nobody's way."""

from __future__ import annotations

import fcntl
import os
import select
import subprocess
import sys
from pathlib import Path
from typing import IO, Any

import pytest
from serving import Files

from fpet.cli import main
from fpet.errors import BusyError, TaskError
from fpet.locks import sole_writer

pytestmark = pytest.mark.usefixtures("one_thread")

HOLD = """
import sys
from pathlib import Path

from fpet.locks import sole_writer
with sole_writer(Path(sys.argv[1])):
    print(flush=True)
    input()
"""


def test_a_second_writer_is_refused_while_there_is_one(tmp_path: Path) -> None:
    output = tmp_path / "new" / "out.csv"
    with sole_writer(output), sole_writer(tmp_path / "new" / "other.csv"):
        for _ in range(2):  # being refused frees nothing
            with pytest.raises(TaskError, match=r"out\.csv: another process .* another output$"), sole_writer(output):
                raise AssertionError("there are two")
    with sole_writer(output):
        pass
    assert not list(output.parent.iterdir())


def test_a_killed_writer_is_in_nobodys_way(tmp_path: Path) -> None:
    output = tmp_path / "out.csv"
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(output)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout is not None
    holder.stdout.readline()
    with pytest.raises(TaskError, match="another process"), sole_writer(output):
        raise AssertionError("there are two")
    holder.kill()
    holder.communicate()
    assert [path.name for path in tmp_path.iterdir()] == [".out.csv.lock"]
    with sole_writer(output):
        pass
    assert not list(tmp_path.iterdir())


def test_what_killed_writers_left_unfinished_is_removed(tmp_path: Path) -> None:
    old, new = tmp_path / ".a.0123abcd.fpet-unfinished", tmp_path / ".b.0123abcd.fpet-unfinished"
    old.touch()
    new.touch()
    os.utime(old, (0, 0))
    with sole_writer(tmp_path / "out.csv"):
        assert not old.exists()
    assert list(tmp_path.iterdir()) == [new]  # somebody may still write it


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(TaskError, match="cannot be written"), sole_writer(tmp_path / "file" / "out.csv"):
        raise AssertionError("there is no such folder")


def test_a_file_that_cannot_be_made_in_a_folder_that_is_there_is_refused(tmp_path: Path) -> None:
    (tmp_path / ".out.csv.lock").symlink_to(tmp_path / "nowhere" / "at all")
    with pytest.raises(TaskError, match="cannot be written: No such file"), sole_writer(tmp_path / "out.csv"):
        raise AssertionError("it cannot be locked")


def test_two_trainings_do_not_share_an_output(
    small_files: Files, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "dup.safetensors"
    train = ["train", "--name", "dup", "--data", "digits", "--epochs", "1", "--warmup-epochs", "0"]
    with sole_writer(output):
        assert main([*train, "--output", str(output), "--backbone", str(small_files.backbone)]) == 2
    assert capsys.readouterr().err.startswith(f"fpet: {output}: another process is writing it")
    assert not output.exists()


def test_a_waiting_writer_enters_after_the_holder_leaves(tmp_path: Path) -> None:
    output = tmp_path / "out.csv"
    script = HOLD.replace("with sole", "print(flush=True)\nwith sole").replace("1]))", "1]), wait=True)")
    with sole_writer(output):
        waiting = subprocess.Popen(
            [sys.executable, "-c", script, str(output)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert waiting.stdout is not None
        waiting.stdout.readline()  # it is about to ask
        ready, _, _ = select.select([waiting.stdout], [], [], 0.5)
        assert not ready
    waiting.stdout.readline()
    with pytest.raises(BusyError), sole_writer(output):
        raise AssertionError("there are two")
    waiting.communicate(b"\n")
    assert waiting.returncode == 0
    assert not list(tmp_path.iterdir())


def test_a_folder_that_another_removes_meanwhile_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output, mkdir, removed = tmp_path / "runs" / "one", Path.mkdir, []

    def soon_gone(folder: Path, *arguments: Any, **more: Any) -> None:
        mkdir(folder, *arguments, **more)
        if not removed:
            removed.append(folder.rmdir())

    monkeypatch.setattr(Path, "mkdir", soon_gone)
    with sole_writer(output):
        assert removed
        assert output.parent.is_dir()


def test_a_lock_on_a_file_that_its_last_holder_removed_meanwhile_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output, flock, removed = tmp_path / "table.csv", fcntl.flock, []

    def late(file: IO[bytes], how: int) -> None:
        if not removed:
            removed.append(output.with_name(".table.csv.lock").unlink())
        flock(file, how)

    monkeypatch.setattr(fcntl, "flock", late)
    with sole_writer(output):
        assert removed
        with pytest.raises(TaskError, match="another process is writing it"), sole_writer(output):
            pass
