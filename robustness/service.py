"""The service as its users run it: `fpet serve` in a process of its own, with a task folder that may change."""

from __future__ import annotations

import http.client
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from benchmarks.servers import READY, fpet_command, free_port, start
from robustness.process import Usage

ADMIN_KEY = "only-for-robustness-tests"
AUTHORIZATION = {"authorization": f"Bearer {ADMIN_KEY}"}


class Service:
    """`fpet serve` on a free port; log: where its standard error goes; options: as its flags, without the dashes."""

    def __init__(self, tasks: Path, log: Path, options: Mapping[str, object]) -> None:
        self.tasks = tasks
        self.log = log
        self.port = free_port()
        self._command = fpet_command(tasks, *(f"--{name}={value}" for name, value in options.items()))

    def start(self) -> None:
        """Returns once it is ready; raises StartError if it does not get there."""
        environment = {"FPET_ADMIN_KEY": ADMIN_KEY}
        self._server = start(self._command, READY, port=self.port, environment=environment, log=self.log)

    @property
    def alive(self) -> bool:
        """Whether its process runs."""
        return self._server.alive

    def usage(self) -> Usage:
        """What its processes hold."""
        return Usage.of(self._server.processes())

    def kill(self) -> None:
        """Ends it without a warning."""
        self._server.kill()

    def stop(self) -> int:
        """Asks it to end; its exit status."""
        return self._server.end()

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


@contextmanager
def running(service: Service) -> Iterator[Service]:
    """Starts it, and ends it whatever happens."""
    service.start()
    try:
        yield service
    finally:
        if service.alive:
            service.stop()
