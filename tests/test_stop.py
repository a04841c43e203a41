"""The process stops under load, and whoever it took a request from has an answer."""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from clients import ask_until_refused
from serving import Files, small_settings

from benchmarks.servers import READY, fpet_command, start
from service.app import create_app
from service.errors import NotReadyError

PATH = "/v1/tasks/digits/classify"


def test_every_request_that_was_taken_is_answered(small_files: Files, tmp_path: Path) -> None:
    """Clients go on asking until nobody takes their requests any more."""
    options = ["--backbone", str(small_files.backbone), "--dtype", "float32", "--calibration-repeats", "0"]
    options += ["--threads", "1", "--max-batch", "4"]
    server = start(fpet_command(small_files.tasks, *options), READY, log=tmp_path / "log")
    busy = threading.Semaphore(0)
    try:
        with ThreadPoolExecutor(8) as pool:
            clients = [pool.submit(ask_until_refused, server.port, PATH, busy.release) for _ in range(8)]
            for _ in range(40):
                busy.acquire()
            os.kill(server.pid, signal.SIGTERM)
            results = [client.result() for client in clients]
    finally:
        code = server.end()
    assert code == -signal.SIGTERM  # raised again once all is done, as processes should end
    assert all(set(seen) <= {"200", "closing"} for seen in results)
    assert sum(seen["closing"] for seen in results) >= 8  # after the signal each connection was told to close
    assert "Traceback" not in (tmp_path / "log").read_text()


@pytest.mark.anyio
async def test_a_service_that_stops_while_it_starts_is_never_ready(small_files: Files) -> None:
    app = create_app(small_settings(small_files))
    async with app.router.lifespan_context(app):
        runtime = app.runtime
        runtime.status = "draining"  # as a signal makes it
        await runtime.warm_up()
        assert (runtime.status, runtime.warm.is_set()) == ("draining", False)
        with pytest.raises(NotReadyError, match="draining"):
            runtime.require_ready()
