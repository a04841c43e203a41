"""A temporary folder that a killed process left goes with the next, and no other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fpet.temporary import held, temporary_folder

KILLED = """
import os, signal, sys
from pathlib import Path
from fpet.temporary import temporary_folder
with temporary_folder(Path(sys.argv[1]), ".kind-") as folder:
    (folder / "content").write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def make(parent: Path) -> list[Path]:
    """What lies in a folder while there is a temporary one in it, without that one."""
    with temporary_folder(parent, ".kind-") as folder:
        return [path for path in parent.iterdir() if path != folder]


def age(path: Path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(path, (then, then))


@pytest.fixture
def left(tmp_path: Path) -> Path:
    """The folder of a process that was killed."""
    ended = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False)
    assert ended.returncode == -signal.SIGKILL
    (folder,) = tmp_path.iterdir()
    assert (folder / "content").read_text() == "half"
    return folder


def test_an_abandoned_folder_is_removed_after_an_hour(left: Path) -> None:
    age(left, 3500)
    assert make(left.parent) == [left]
    age(left, 3700)
    assert make(left.parent) == []


def test_an_abandoned_folder_that_is_locked_stays(left: Path) -> None:
    with held(left):
        age(left, 3700)
        assert make(left.parent) == [left]


@pytest.mark.parametrize("prefix", [".*.", ".a[b]-", ".a**b-", ".?ind-"])
def test_a_prefix_is_no_pattern(prefix: str, left: Path) -> None:
    age(left, 3700)
    mine = left.rename(left.with_name(f"{prefix}left"))
    (other := left.with_name(".kind-other")).mkdir()
    (other / "lock").touch()
    age(other, 3700)
    with temporary_folder(left.parent, prefix):
        assert not mine.exists()
        assert other.exists()


def test_what_is_of_another_kind_stays(left: Path) -> None:
    others = [left.with_name(name) for name in (".kind-file", ".kind-link", ".kind-unlocked", ".other-kind")]
    others[0].touch()
    others[1].symlink_to(left)
    for folder in others[2:]:
        folder.mkdir()
    for path in others:
        age(path, 3700)
    age(left, 3500)
    assert sorted(make(left.parent)) == sorted([left, *others])
