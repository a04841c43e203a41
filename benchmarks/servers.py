"""Servers in processes of their own: started, awaited, held still, weighed and ended with all that they started."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

_START_SECONDS = 300
_STOP_SECONDS = 20
_KIB = 1024
_ENDED = ("", "Z")  # gone, or not yet missed by its parent
_STILL = ("T", *_ENDED)


class Server:
    """A process, and those that it started, that serve HTTP on a port of this machine."""

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self._process = process
        self.port = port

    def processes(self) -> list[int]:
        """The process, and all that it started, directly or not."""
        return _tree(self._process.pid)

    def memory(self) -> int:
        """Resident bytes of all its processes: what they hold of their own, counting once what they share of it, and
        the mapped files of the one that maps most, since the others map the same."""
        own, mapped = 0, 0
        for pid in self.processes():
            shares = _kib(Path(f"/proc/{pid}/smaps_rollup"))
            own += shares["Pss_Anon"] + shares["Pss_Shmem"]
            mapped = max(mapped, _kib(Path(f"/proc/{pid}/status"))["RssFile"])
        return _KIB * (own + mapped)

    def pause(self) -> None:
        """Holds all its processes still: some poll even when nobody asks, at the cost of who is timed meanwhile."""
        processes = self.processes()
        _send(processes, signal.SIGSTOP)
        _await(lambda: all(state(pid) in _STILL for pid in processes), _STOP_SECONDS, "the server did not stand still")

    def resume(self) -> None:
        """Lets them go on."""
        _send(self.processes(), signal.SIGCONT)

    def await_ready(self, path: str) -> None:
        """Waits until a GET of this path is answered with 200.

        Raises:
            RuntimeError: if the process ends before that, or it takes too long.
        """
        failed = f"the server did not start: {self._process.args!r}"
        _await(lambda: self._answers(path) or self._process.poll() is not None, _START_SECONDS, failed)
        if self._process.poll() is not None:
            raise RuntimeError(failed)

    def end(self) -> None:
        """Ends it as a user would, and whatever is left after that by force."""
        self.resume()
        processes = self.processes()
        self._process.terminate()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        _send(processes[1:], signal.SIGKILL)
        _await(lambda: all(state(pid) in _ENDED for pid in processes), _STOP_SECONDS, "the server did not end")

    def _answers(self, path: str) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}") as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


@contextmanager
def serving(command: Sequence[str], ready: str, environment: Mapping[str, str] | None = None) -> Iterator[Server]:
    """A server that is ready, until the end of the block.

    command: in which {port} stands for a free port; ready: path that answers with 200 from then on; environment:
    further variables.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    arguments = [part.format(port=port) for part in command]
    process = subprocess.Popen(arguments, env={**os.environ, **(environment or {})})
    server = Server(process, port)
    try:
        server.await_ready(ready)
        yield server
    finally:
        server.end()


@contextmanager
def fpet_serve(tasks: Path, *options: str) -> Iterator[Server]:
    """`fpet serve` on the tasks of a folder."""
    command = [sys.executable, "-m", "fpet.cli", "serve", "--port", "{port}", "--tasks", str(tasks)]
    with serving([*command, "--log-level", "warning", *options], "/readyz") as server:
        yield server


def _tree(pid: int) -> list[int]:
    """A process and all that it started, directly or not."""
    children = [int(child) for file in Path(f"/proc/{pid}/task").glob("*/children") for child in _read(file).split()]
    return [pid, *(each for child in children for each in _tree(child))]


def _kib(file: Path) -> Counter[str]:
    """The lines of such a file that end in kB; none if the process has ended."""
    rows = [line.split() for line in _read(file).splitlines() if line.endswith(" kB")]
    return Counter({row[0].rstrip(":"): int(row[-2]) for row in rows})


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:  # the process or thread has ended
        return ""


def state(pid: int) -> str:
    """The letter for what a process does, such as S for sleeping; empty if there is none."""
    return _read(Path(f"/proc/{pid}/stat")).rpartition(")")[2].strip()[:1]


def _send(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _await(condition: Callable[[], bool], seconds: float, failed: str) -> None:
    """Asks again and again; raises RuntimeError if it takes longer than that."""
    give_up = time.perf_counter() + seconds
    while not condition():
        if time.perf_counter() > give_up:
            raise RuntimeError(failed)
        time.sleep(0.05)
