"""Starts the processes of a service, hands signals on to them, and ends all of them when one ends."""

from __future__ import annotations

import logging
import math
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from fpet.errors import FpetError, UnsupportedError
from fpet.temporary import held
from service.ending import FAILED, longest_end
from service.http.listening import bind, claimed
from service.processes.folder import socket_folder
from service.processes.peers import Peers
from service.settings import Settings

logger = logging.getLogger(__name__)

_LOOK_SECONDS = 1.0
_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass
class _Processes:
    """The processes that were started; patience: seconds in which they must end once they are told to; received: the
    signals that were handed on to them."""

    patience: float
    started: list[BaseProcess] = field(default_factory=list)
    received: list[int] = field(default_factory=list)
    _until: float = math.inf

    def add(self, process: BaseProcess) -> None:
        process.start()
        self.started.append(process)
        if self.received:  # just before it could be handed on to this one too
            process.terminate()

    def hand_on(self, number: int) -> None:
        """Tells them to stop; by a second SIGINT, to stop at once."""
        self._signal(number if self.received else signal.SIGTERM)
        self.received.append(number)

    def await_end(self) -> int | None:
        """Waits until one has ended, whose number it returns, or until all should have."""
        sentinels = [process.sentinel for process in self.started]
        while time.monotonic() < self._until:
            if ended := wait(sentinels, _LOOK_SECONDS):  # which a signal does not interrupt
                number = next(number for number, one in enumerate(sentinels) if one in ended)
                self.started[number].join()
                return number
        return None

    def end(self) -> None:
        """Tells them to stop, unless they were told, and kills those that do not end in time."""
        if not self.received:
            self._signal(signal.SIGTERM)
        for number, process in enumerate(self.started):
            process.join(max(0.0, self._until - time.monotonic()))
            if process.is_alive():
                logger.error("process %d of %d does not end, and is killed", number, len(self.started))
                process.kill()
                process.join()

    @property
    def failed(self) -> bool:
        """Whether one, of those that have ended, did not do so as it was told."""
        return any(process.exitcode not in {0, *(-number for number in _STOPPING)} for process in self.started)

    def _signal(self, number: int) -> None:
        self._until = min(self._until, time.monotonic() + self.patience)
        for process in self.started:
            if process.is_alive() and process.pid is not None:
                os.kill(process.pid, number)


def supervise(settings: Settings) -> int:
    """Serves in `settings.processes` processes until a signal; returns the exit code, 1 if one of them ended by itself,
    or had to be ended.

    Then the others end too, after they have answered what they accepted: who started the service starts all of it
    again, and its counters begin anew together.

    Raises:
        FpetError: if the address, the working folder or the one for temporary files cannot be used, or one of them
            cannot begin, with its reason.
    """
    _require_enterable()
    processes = _Processes(longest_end(settings))
    with ExitStack() as stack:
        stack.enter_context(_handed_on(processes))
        folder = stack.enter_context(socket_folder(settings.processes))
        with _listeners(settings) as listeners:
            stack.enter_context(claimed(settings.host, listeners[0]))
            stack.callback(processes.end)
            started = time.time()
            complaints = [
                _start(processes, settings, Peers(folder, number, len(listeners), started), sockets)
                for number, sockets in enumerate(listeners)
            ]
        number = processes.await_end()
        reason = None if number is None else _reason(complaints[number])
        if not processes.received and number is not None and reason is None:
            code = processes.started[number].exitcode
            logger.error("process %d of %d ended with code %s, and so all end", number, len(listeners), code)
    if reason is not None:
        raise UnsupportedError(reason)
    if not processes.received or processes.failed:
        return FAILED
    signal.raise_signal(processes.received[0])  # as processes should end that a signal ended
    return 0


def _require_enterable() -> None:
    """Raises UnsupportedError if the working folder cannot be entered by its name, as each process that begins does:
    the user may have changed since it was entered, as by `sudo -u`."""
    try:
        os.chdir(Path.cwd())
    except OSError as error:
        raise UnsupportedError(f"--processes: the working folder cannot be entered: {error.strerror}") from error


@contextmanager
def _listeners(settings: Settings) -> Iterator[list[list[socket.socket]]]:
    """The sockets on which each process is to listen. They are closed here when those that were started hold them: a
    socket that this process held open would take connections that nobody accepts any more."""
    with ExitStack() as stack:
        listeners, port = [], settings.port
        for _ in range(settings.processes):
            listeners.append([stack.enter_context(one) for one in bind(settings.host, port, shared=True)])
            port = listeners[0][0].getsockname()[1]
        shown = f"[{settings.host}]" if ":" in settings.host else settings.host
        logger.info("starting %d processes on http://%s:%d", settings.processes, shown, port)
        yield listeners


def _start(processes: _Processes, settings: Settings, peers: Peers, sockets: Sequence[socket.socket]) -> Connection:
    """Starts a process; returns the pipe in which it says why it cannot begin, if it cannot."""
    context = multiprocessing.get_context("spawn")
    complaint, complaining = context.Pipe(duplex=False)
    processes.add(context.Process(target=_serve, args=(settings, peers, sockets, complaining)))
    complaining.close()
    return complaint


@contextmanager
def _handed_on(processes: _Processes) -> Iterator[None]:
    """Signals that stop a service go to its processes; SIGHUP too, unless `nohup` asked to ignore it."""
    numbers = [one for one in _STOPPING if one != signal.SIGHUP or signal.getsignal(one) is not signal.SIG_IGN]
    before = {one: signal.signal(one, lambda number, _: processes.hand_on(number)) for one in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _reason(complaint: Connection) -> str | None:
    try:
        return str(complaint.recv())
    except EOFError:
        return None


def _serve(settings: Settings, peers: Peers, sockets: Sequence[socket.socket], complaining: Connection) -> None:
    """The main function of each process. Its parent alone sends it signals, and it does not outlive its parent."""
    assert peers.folder is not None, "it is one of several"
    os.setpgid(0, 0)
    threading.Thread(target=_end_with_parent, args=(longest_end(settings),), daemon=True).start()
    from service.process import prepare, serve  # noqa: PLC0415  # takes seconds, in which the parent may end

    try:
        with held(peers.folder):
            code = serve(prepare(settings, peers), list(sockets))
    except FpetError as error:
        complaining.send(str(error))
        sys.exit(FAILED)
    sys.exit(code)


def _end_with_parent(seconds: float) -> None:
    """Ends the process when its parent has ended, in so many seconds at the latest: nobody else is left to do it."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(seconds)
    os.kill(os.getpid(), signal.SIGKILL)
