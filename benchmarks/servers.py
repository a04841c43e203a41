"""Servers in processes of their own: started, awaited, held still, weighed and ended with all that they started."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

READY = "/readyz"  # of `fpet serve`
_START_SECONDS = 300
_STOP_SECONDS = 60
_PORTS = (16384, 32768)
_KIB = 1024
_ENDED = ("", "Z")  # gone, or not yet missed by its parent
_STILL = ("T", *_ENDED)


class StartError(RuntimeError):
    """A server ended before it was ready, or was not ready in time."""


class Server:
    """A process, and those that it started, that serve HTTP on a port of this machine."""

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self._process = process
        self.pid = process.pid
        self.port = port

    @property
    def alive(self) -> bool:
        """Whether its process runs."""
        return self._process.poll() is None

    def processes(self) -> list[int]:
        """The process, and all that it started, directly or not."""
        return _tree(self._process.pid)

    def memory(self) -> int:
        """Resident bytes of all its processes: what they hold of their own, counting once what they share of it, and
        the mapped files of the one that maps most, since the others map the same."""
        own, mapped = 0, 0
        for pid in self.processes():
            shares = held(Path(f"/proc/{pid}/smaps_rollup"))
            own += shares["Pss_Anon"] + shares["Pss_Shmem"]
            mapped = max(mapped, held(Path(f"/proc/{pid}/status"))["RssFile"])
        return own + mapped

    def pause(self) -> None:
        """Holds all its processes still: some poll even when nobody asks, at the cost of who is timed meanwhile."""
        processes = self.processes()
        _send(processes, signal.SIGSTOP)
        failed = RuntimeError("the server did not stand still")
        _await(lambda: all(state(pid) in _STILL for pid in processes), _STOP_SECONDS, failed)

    def resume(self) -> None:
        """Lets them go on."""
        _send(self.processes(), signal.SIGCONT)

    def await_ready(self, path: str) -> None:
        """Waits until a GET of this path is answered with 200.

        Raises:
            StartError
        """
        failed = StartError(f"the server did not start: {self._process.args!r}")
        _await(lambda: self._answers(path) or not self.alive, _START_SECONDS, failed)
        if not self.alive:
            raise failed

    def end(self) -> int:
        """Ends it as a user would, and whatever is left after that by force; the exit status."""
        self.resume()
        processes = self.processes()
        self._process.terminate()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
        _send(processes[1:], signal.SIGKILL)
        return self._await_end(processes)

    def kill(self) -> None:
        """Ends it without a warning."""
        processes = self.processes()
        _send(processes, signal.SIGKILL)
        self._await_end(processes)

    def _await_end(self, processes: Sequence[int]) -> int:
        """Waits for all of them, each of which may hold the port; the exit status of the one that was started."""
        failed = RuntimeError("the server did not end")
        _await(lambda: all(state(pid) in _ENDED for pid in processes), _STOP_SECONDS, failed)
        return self._process.wait()

    def _answers(self, path: str) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}") as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


def free_port() -> int:
    """A port that nothing listens on; a random one, below those that Linux gives whoever asks for any meanwhile."""
    while True:
        port = random.SystemRandom().randrange(*_PORTS)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def start(
    command: Sequence[str],
    ready: str,
    *,
    port: int | None = None,
    environment: Mapping[str, str] | None = None,
    log: Path | None = None,
) -> Server:
    """A server that is ready, and which the caller has to end.

    command: in which {port} stands for the port, a free one if none is given; ready: path that answers with 200 from
    then on; environment: further variables; log: file to which its standard error is added.

    Raises:
        StartError: with what the log holds as a note.
    """
    port = free_port() if port is None else port
    with nullcontext() if log is None else log.open("ab") as stderr:
        arguments = [part.format(port=port) for part in command]
        server = Server(subprocess.Popen(arguments, stderr=stderr, env={**os.environ, **(environment or {})}), port)
    try:
        server.await_ready(ready)
    except BaseException as error:
        if log is not None:
            error.add_note(log.read_text(errors="replace"))
        server.end()
        raise
    return server


@contextmanager
def serving(command: Sequence[str], ready: str, environment: Mapping[str, str] | None = None) -> Iterator[Server]:
    """As `start`, until the end of the block."""
    server = start(command, ready, environment=environment)
    try:
        yield server
    finally:
        server.end()


def fpet_command(tasks: Path, *options: str) -> list[str]:
    """`fpet serve` on the tasks of a folder, for `start`; it is ready when `READY` is."""
    command = [sys.executable, "-m", "fpet.cli", "serve", "--port", "{port}", "--tasks", str(tasks)]
    return [*command, "--log-level", "warning", *options]


@contextmanager
def fpet_serve(tasks: Path, *options: str) -> Iterator[Server]:
    """`fpet serve` on the tasks of a folder, until the end of the block."""
    with serving(fpet_command(tasks, *options), READY) as server:
        yield server


def held(file: Path) -> Counter[str]:
    """Bytes by the names of those lines of a file in /proc that end in kB; none if the process has ended."""
    rows = [line.split() for line in _read(file).splitlines() if line.endswith(" kB")]
    return Counter({row[0].rstrip(":"): _KIB * int(row[-2]) for row in rows})


def _tree(pid: int) -> list[int]:
    """A process and all that it started, directly or not."""
    children = [int(child) for file in Path(f"/proc/{pid}/task").glob("*/children") for child in _read(file).split()]
    return [pid, *(each for child in children for each in _tree(child))]


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


def _await(condition: Callable[[], bool], seconds: float, failed: Exception) -> None:
    """Asks again and again; raises the error if it takes longer than that."""
    give_up = time.perf_counter() + seconds
    while not condition():
        if time.perf_counter() > give_up:
            raise failed
        time.sleep(0.05)
