"""Starts the processes of a service, hands signals on to them, and ends all of them when one ends."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from fpet.errors import FpetError, UnsupportedError
from service.listening import bind_shared
from service.processes.siblings import Siblings
from service.settings import Settings

logger = logging.getLogger(__name__)

_FAILED = 1
_GRACE_SECONDS = 5.0  # for threads and memory, once all is answered


@dataclass
class _Processes:
    """Those that were started; received: the signals that were handed on to them."""

    started: list[BaseProcess] = field(default_factory=list)
    received: list[int] = field(default_factory=list)

    def add(self, process: BaseProcess) -> None:
        process.start()
        self.started.append(process)
        if self.received:  # just before it could be handed on to this one too
            process.terminate()

    def hand_on(self, number: int) -> None:
        """Tells them to stop; by a second SIGINT, to stop at once."""
        self._signal(number if self.received else signal.SIGTERM)
        self.received.append(number)

    def await_end(self) -> tuple[int, int | None]:
        """Waits until one has ended; its number and exit code, a signal's being negative."""
        sentinels = [process.sentinel for process in self.started]
        number = sentinels.index(next(one for one in wait(sentinels) if isinstance(one, int)))
        self.started[number].join()
        return number, self.started[number].exitcode

    def end(self) -> None:
        if not self.received:
            self._signal(signal.SIGTERM)
        for process in self.started:
            process.join()

    def _signal(self, number: int) -> None:
        for process in self.started:
            if process.is_alive() and process.pid is not None:
                os.kill(process.pid, number)


def supervise(settings: Settings) -> int:
    """Serves in `settings.processes` processes until a signal; returns the exit code, 1 if one of them ended by itself.

    Then the others end too, after they have answered what they accepted: who started the service starts all of it
    again, and its counters begin anew together.

    Raises:
        FpetError: if the address cannot be used, or one of them cannot begin, with its reason.
    """
    processes = _Processes()
    with ExitStack() as stack:
        stack.enter_context(_handed_on(processes))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fpet-")))
        doors, port = [], settings.port
        for _ in range(settings.processes):
            doors.append([stack.enter_context(one) for one in bind_shared(settings.host, port)])
            port = doors[0][0].getsockname()[1]
        shown = f"[{settings.host}]" if ":" in settings.host else settings.host
        logger.info("starting %d processes on http://%s:%d", settings.processes, shown, port)
        stack.callback(processes.end)
        complaints = [
            _start(processes, settings, Siblings(folder, number, len(doors)), door) for number, door in enumerate(doors)
        ]
        number, code = processes.await_end()
        reason = _reason(complaints[number])
        if not processes.received and reason is None:
            logger.error("process %d of %d ended with code %s, and so all end", number, len(doors), code)
    if reason is not None:
        raise UnsupportedError(reason)
    if not processes.received:
        return _FAILED
    signal.raise_signal(processes.received[0])  # as processes should end that a signal ended
    return 0


def _start(processes: _Processes, settings: Settings, siblings: Siblings, door: Sequence[socket.socket]) -> Connection:
    """Starts one of them; returns where it tells why it cannot begin, if it cannot."""
    context = multiprocessing.get_context("spawn")
    complaint, complaining = context.Pipe(duplex=False)
    processes.add(context.Process(target=_serve, args=(settings, siblings, door, complaining)))
    complaining.close()
    return complaint


@contextmanager
def _handed_on(processes: _Processes) -> Iterator[None]:
    """Signals that stop a service go to its processes; SIGHUP too, unless `nohup` asked to ignore it."""
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
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


def _serve(settings: Settings, siblings: Siblings, sockets: Sequence[socket.socket], complaining: Connection) -> None:
    """What each of them does. Signals reach it through its parent alone, whose end it does not outlive."""
    from service.process import serve  # noqa: PLC0415

    os.setpgid(0, 0)
    patience = settings.shutdown_delay + settings.drain_seconds + _GRACE_SECONDS
    threading.Thread(target=_end_with_parent, args=(patience,), daemon=True).start()
    try:
        code = serve(settings, siblings, list(sockets))
    except FpetError as error:
        complaining.send(str(error))
        sys.exit(_FAILED)
    sys.exit(code)


def _end_with_parent(seconds: float) -> None:
    """Ends the process when its parent has ended, in so many seconds at the latest: nobody else is left to do it."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(seconds)
    os.kill(os.getpid(), signal.SIGKILL)
