"""Several processes end together: what one accepted is answered though it needs another that has nothing more to do."""

from __future__ import annotations

import asyncio
import http.client
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from changing import put, task_file
from serving import KEY, SECONDS, Files, small_settings
from test_processes import PATH, get, start_several
from two import Both, told, two

# Many times as long as a process takes to end that waits for nobody.
_LONG = 3.0


@pytest.fixture
def both(files: Files, tmp_path: Path) -> Iterator[Both]:
    with two(small_settings(files, admin_key=KEY, watch=False), tmp_path) as services:
        yield services


@pytest.mark.parametrize("asked", [0, 1], ids=["first", "second"])
def test_a_change_that_is_under_way_is_made_in_both(both: Both, asked: int, tmp_path: Path) -> None:
    first, second = both
    released = threading.Event()
    second.on_loop(lambda: asyncio.ensure_future(second.runtime.administer(released.wait)))
    try:
        with ThreadPoolExecutor(1) as pool:
            changed = pool.submit(put, both[asked], "digits", task_file(tmp_path))
            first.until(lambda: told(first, "digits")["generation"] == 2)
            for one in both:
                one.server.should_exit = True  # what SIGTERM sets
            with pytest.raises(TimeoutError):
                changed.result(timeout=_LONG)
            released.set()
            answer = changed.result()
    finally:
        released.set()
    assert (answer.status_code, answer.json()["generation"]) == (200, 2)
    (task,) = (one for one in second.runtime.catalog.entries.serving() if one.header.name == "digits")
    assert (task.digest, task.generation) == (answer.json()["digest"], 2)


def test_requests_and_last_traces_have_all_of_their_time(small_files: Files, tmp_path: Path) -> None:
    """A request whose body does not come is waited for, and then a collector that takes nothing."""
    with socket.create_server(("127.0.0.1", 0)) as collector:
        endpoint = f"http://127.0.0.1:{collector.getsockname()[1]}"
        server = start_several(small_files, tmp_path, "--drain-seconds", "0.01", "--otlp-endpoint", endpoint)
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=SECONDS)
        connection.putrequest("POST", PATH)
        connection.putheader("content-type", "image/png")
        connection.putheader("content-length", "1000")
        connection.endheaders(b"x")
        give_up = time.monotonic() + SECONDS
        while re.findall(r"^fpet_queue_size (\S+)", get(server, "/metrics"), re.M) != ["1.0"]:
            assert time.monotonic() < give_up
        os.kill(server.pid, signal.SIGTERM)
        assert connection.getresponse().status == 503
        assert server.end() == -signal.SIGTERM
        connection.close()
    log = (tmp_path / "log").read_text()
    assert "the collector did not take the last traces within 5 seconds" in log
    assert "is killed" not in log
