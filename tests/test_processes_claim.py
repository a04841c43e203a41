"""Of two services of several processes one has the port, though none listens yet, and for as long as it runs."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from serving import SECONDS, Files
from test_processes import OPTIONS, await_end

from benchmarks.servers import READY, Server, fpet_command, free_port, start


def command(files: Files, port: int) -> list[str]:
    options = [*OPTIONS, "--backbone", str(files.backbone), "--log-level", "info"]
    return [part.format(port=port) for part in fpet_command(files.tasks, *options)]


@contextmanager
def starting(files: Files, port: int, log: Path) -> Iterator[Server]:
    """A service that has taken the port, and does not listen yet."""
    with log.open("wb") as stderr:
        server = Server(subprocess.Popen(command(files, port), stderr=stderr), port)
    try:
        give_up = time.monotonic() + SECONDS
        while "starting 2 processes" not in log.read_text():
            assert time.monotonic() < give_up
        yield server
    finally:
        server.end()


def test_a_second_is_refused_before_the_first_listens(small_files: Files, tmp_path: Path) -> None:
    port = free_port()
    with starting(small_files, port, tmp_path / "log"):
        second = subprocess.run(
            command(small_files, port), capture_output=True, text=True, timeout=SECONDS, check=False
        )
    assert second.returncode == 2
    said = f"--host '127.0.0.1' and --port {port}: Address already in use; give another --port"
    assert second.stderr.splitlines()[-1] == f"fpet: {said}"


def test_one_that_was_killed_claims_nothing(small_files: Files, tmp_path: Path) -> None:
    port = free_port()
    with starting(small_files, port, tmp_path / "log") as first:
        pids = first.processes()
        os.kill(first.pid, signal.SIGKILL)
        await_end(*pids)
        start(command(small_files, port), READY, port=port, log=tmp_path / "log").end()
