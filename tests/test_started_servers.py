"""Servers that the benchmarks and the robustness tests start: what they hear of one that does not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks.servers import StartError, start


def test_a_server_that_ends_before_it_is_ready_says_why(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("what an earlier one said\n")
    command = [sys.executable, "-c", "import sys; sys.exit('no room at ' + sys.argv[1])", "{port}"]
    with pytest.raises(StartError, match="did not start") as failure:
        start(command, "/", port=1234, log=log)
    assert failure.value.__notes__ == ["what an earlier one said\nno room at 1234\n"]


def test_a_server_is_killed_with_what_it_started(tmp_path: Path) -> None:
    (tmp_path / "index.html").touch()
    program = f"{sys.executable} -m http.server --bind 127.0.0.1 --directory {tmp_path} {{port}} & wait"
    server = start(["sh", "-c", program], "/", log=tmp_path / "log")
    processes = server.processes()
    server.kill()
    assert len(processes) == 2
    assert not server.alive
