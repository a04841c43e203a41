"""Files are written whole or not at all, and what a killed process leaves is found."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from fpet.errors import TaskError
from fpet.files import remove_abandoned, write_atomically, write_folder
from fpet.safetensors_files import parse_safetensors

# Dies of writing more than the kernel lets it, as if killed with half of the file written.
KILLED = """
import resource, signal, sys
from pathlib import Path
from fpet.errors import TaskError
from fpet.files import write_atomically
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
write_atomically(Path(sys.argv[1]), bytes(2000), TaskError)
"""


def age(path: Path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(path, (then, then), follow_symlinks=False)


@pytest.fixture
def unfinished(tmp_path: Path) -> Path:
    """What a writer of `task` leaves that is killed; the file from before lies beside it."""
    write_atomically(tmp_path / "task", b"before", TaskError)
    ended = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "task")], check=False)
    assert ended.returncode == -signal.SIGXFSZ
    (left,) = (path for path in tmp_path.iterdir() if path.name != "task")
    return left


def test_an_interrupted_writer_leaves_nothing(tmp_path: Path) -> None:
    write_atomically(tmp_path / "task", b"before", TaskError)
    script = KILLED.replace("signal.SIG_DFL", "signal.default_int_handler")
    ended = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "task")], stderr=subprocess.PIPE, text=True, check=False
    )
    assert ended.stderr.splitlines()[-1] == "KeyboardInterrupt"
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("task", b"before")]


def test_what_cannot_even_be_removed_hides_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As once a disk fails and its file system is read-only from then on."""

    def read_only(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(Path, "replace", read_only)
    monkeypatch.setattr(Path, "unlink", read_only)
    with pytest.raises(TaskError, match="cannot be written: Read-only file system"):
        write_atomically(tmp_path / "file", b"data", TaskError)


def test_what_a_killed_writer_left_is_removed_after_an_hour(unfinished: Path) -> None:
    folder = unfinished.parent
    assert unfinished.stat().st_size == 1000
    age(unfinished, 3500)
    assert remove_abandoned(folder) == []
    age(unfinished, 3700)
    assert remove_abandoned(folder) == [unfinished]
    assert [(path.name, path.read_bytes()) for path in folder.iterdir()] == [("task", b"before")]


def test_what_somebody_still_writes_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / ".task.a1b2c3d4.fpet-unfinished"
    with path.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        age(path, 3700)
        assert remove_abandoned(tmp_path) == []
    assert remove_abandoned(tmp_path) == [path]


def is_held(path: Path) -> bool:
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    assert not path.exists()  # the lock ends after the file has got its name
    return False


def watch(folder: Path, writing: Future[os.stat_result]) -> Iterator[bool]:
    """Whether what is written there is held, again and again; it is locked before anything is in it."""
    while not writing.done():
        with suppress(FileNotFoundError):
            yield from (is_held(path) for path in folder.glob(".*") if path.stat().st_size)
    writing.result()


def test_a_writer_holds_its_file_until_it_has_its_name(tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as thread:
        looks = (
            watch(tmp_path, thread.submit(write_atomically, tmp_path / "task", bytes(2**25), TaskError))
            for _ in range(50)
        )
        assert any(any(list(look)) for look in looks)


def test_what_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    for name in ("elsewhere", ".hidden", ".unfinished", "shown.fpet-unfinished"):
        (tmp_path / name).touch()
    (tmp_path / ".link.fpet-unfinished").symlink_to(tmp_path / "elsewhere")
    (tmp_path / ".folder.fpet-unfinished").mkdir()
    os.mkfifo(tmp_path / ".pipe.fpet-unfinished")
    before = sorted(tmp_path.iterdir())
    for path in before:
        age(path, 3700)
    assert remove_abandoned(tmp_path) == []
    assert sorted(tmp_path.iterdir()) == before


def test_whoever_may_read_the_folder_may_read_what_is_written(tmp_path: Path) -> None:
    """A task file is written by one user and served by another, unless the first wants nobody else to read."""
    for umask, mode in ((0o022, 0o644), (0o077, 0o600)):
        before = os.umask(umask)
        try:
            write_atomically(tmp_path / "task", b"content", TaskError)
        finally:
            os.umask(before)
        assert (tmp_path / "task").stat().st_mode & 0o777 == mode


@pytest.mark.parametrize("name", ["n" * 255, "\u00e4" * 127, "\u4eba" * 85])
def test_a_name_may_be_as_long_as_names_are(name: str, tmp_path: Path) -> None:
    write_atomically(tmp_path / name, b"content", TaskError)
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [(name, b"content")]


def test_a_writer_is_told_what_it_wrote_whatever_lies_there_by_now(tmp_path: Path) -> None:
    def told(status: os.stat_result) -> tuple[int, int, int, int]:
        return status.st_mtime_ns, status.st_size, status.st_ino, status.st_ctime_ns

    path = tmp_path / "task"
    first = write_atomically(path, b"first", TaskError)
    assert told(first) == told(path.stat())
    second = write_atomically(path, b"another", TaskError)
    assert told(first) != told(second) == told(path.stat())


def test_a_file_is_on_the_disk_before_it_gets_its_name_and_its_name_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "task"
    path.write_bytes(b"old")
    synced: list[tuple[int | None, bytes]] = []

    def sync(file: int) -> None:
        status = os.fstat(file)
        synced.append((None if stat.S_ISDIR(status.st_mode) else status.st_size, path.read_bytes()))

    monkeypatch.setattr(os, "fsync", sync)
    write_atomically(path, b"newer", TaskError)
    assert synced == [(5, b"old"), (None, b"newer")]


def test_a_folder_that_cannot_be_synced_harms_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def sync(file: int) -> None:
        if stat.S_ISDIR(os.fstat(file).st_mode):
            raise OSError("no file system of this kind can")

    monkeypatch.setattr(os, "fsync", sync)
    write_atomically(tmp_path / "task", b"new", TaskError)
    assert (tmp_path / "task").read_bytes() == b"new"


def test_a_folder_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    with pytest.raises(TaskError, match="checkpoint: cannot be written: No such file or directory"):
        write_folder(path, {"config.json": b"{}", "no/such/folder": b""}, TaskError)
    assert list(tmp_path.iterdir()) == []
    write_folder(path, {"config.json": b"{}"}, TaskError)
    assert [one.name for one in tmp_path.rglob("*")] == ["checkpoint", "config.json"]
    assert path.stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize("shape", [[0, 2**63], [0, 2**62, 2**62]], ids=["a number", "strides"])
def test_a_shape_that_torch_cannot_count_is_no_whole_file(shape: list[int]) -> None:
    header = json.dumps({"a": {"dtype": "F32", "shape": shape, "data_offsets": [0, 0]}}).encode()
    with pytest.raises(TaskError, match=r"^a: not a complete safetensors file: [^\n]+$"):
        parse_safetensors(len(header).to_bytes(8, "little") + header, Path("a"), TaskError)
