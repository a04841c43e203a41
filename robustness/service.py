"""The service as its users run it: `fpet serve` in a process of its own, with a task folder that may change."""

from __future__ import annotations

import http.client
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from fpet.weights import tasks_folder
from robustness.process import Usage

ADMIN_KEY = "only-for-robustness-tests"
AUTHORIZATION = {"authorization": f"Bearer {ADMIN_KEY}"}
_START_SECONDS = 300.0
_ASK_AGAIN = 0.05


class Service:
    """`fpet serve` on a free port; log: where its standard error goes; options: as its flags, without the dashes."""

    def __init__(self, tasks: Path, log: Path, options: Mapping[str, object]) -> None:
        self.tasks = tasks
        self.log = log
        self._options = options
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]

    def start(self) -> None:
        """Returns once it is ready."""
        options = {"port": self.port, "tasks": self.tasks, "log-level": "warning", **self._options}
        arguments = [f"--{name}={value}" for name, value in options.items()]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "fpet.cli", "serve", *arguments],
                stderr=log,
                env={**os.environ, "FPET_ADMIN_KEY": ADMIN_KEY},
            )
        give_up = time.monotonic() + _START_SECONDS
        while not self._ready():
            if time.monotonic() > give_up or not self.alive:
                raise RuntimeError(f"the service does not start:\n{self.log.read_text()}")
            time.sleep(_ASK_AGAIN)

    @property
    def alive(self) -> bool:
        """Whether its process runs."""
        return self._process.poll() is None

    def usage(self) -> Usage:
        """What its process holds."""
        return Usage.of(self._process.pid)

    def kill(self) -> None:
        """Ends it without a warning."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> int:
        """Asks it to end; its exit status."""
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait()

    def request(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, bytes]:
        """Status and body of one answer; raises OSError or HTTPException if there is none."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body, dict(headers or {}))
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def tracebacks(self) -> int:
        """Errors in its log that nobody foresaw."""
        return self.log.read_text(errors="replace").count("Traceback (most recent call last)")

    def _ready(self) -> bool:
        try:
            return self.request("GET", "/readyz")[0] == 200
        except OSError:
            return False


def copy_tasks(folder: Path) -> None:
    """Puts the embedded tasks into a folder, in the place of what it held under their names."""
    folder.mkdir(exist_ok=True)
    for path in tasks_folder().glob("*.safetensors"):
        shutil.copy(path, folder)


@contextmanager
def running(service: Service) -> Iterator[Service]:
    """Starts it, and ends it whatever happens."""
    service.start()
    try:
        yield service
    finally:
        if service.alive:
            service.stop()
