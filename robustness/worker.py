"""Cases in a process of their own, so that a crash or an endless loop is a finding and not the end of the run."""

from __future__ import annotations

import multiprocessing
import signal
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from multiprocessing.sharedctypes import SynchronizedArray
from pathlib import Path

import torch

from robustness.process import MIB, Usage, limit_memory
from robustness.targets import Target

# Of the processor: a busy machine makes nothing slow.
_MOST_SECONDS = 1.0
_MOST_MEMORY = 1024 * MIB
_HANG = 30.0  # seconds in which a case must end, however busy the machine is
_POLL = 0.2
_WARM = 0.2  # share of the cases after which memory is first looked at

# Places in what a worker and its watcher share.
_INDEX, _TAKEN, _REFUSED, _SLOWEST = range(4)
_NOT_STARTED = -1
Problem = tuple[str, str, int]  # kind, detail, index of the case


class Worker:
    """A process that runs the cases from `first` to before `last`.

    next: where to go on once it has ended; taken, refused: cases; slowest: seconds of the processor; growth: bytes of
    memory, from when it was warm.
    """

    def __init__(self, make: Callable[[], Target], seed: int, first: int, last: int) -> None:
        # A server that has imported torch but never used it is quick and safe to fork.
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["robustness.targets"])
        self._shared: SynchronizedArray[float] = context.Array("d", [_NOT_STARTED, 0, 0, 0])
        self._problems, sending = context.Pipe(duplex=False)
        self._process = context.Process(target=_work, args=(make, seed, range(first, last), self._shared, sending))
        self._process.start()
        sending.close()
        self._range = first, last
        self._warm: int | None = None
        self.growth = 0

    @property
    def next(self) -> int:
        """The case after the last that ran."""
        return int(self._shared[_INDEX]) + (self._process.exitcode != 0)

    @property
    def taken(self) -> int:
        """Cases that were accepted."""
        return int(self._shared[_TAKEN])

    @property
    def refused(self) -> int:
        """Cases that were refused with the right error."""
        return int(self._shared[_REFUSED])

    @property
    def slowest(self) -> float:
        """Seconds of the processor."""
        return float(self._shared[_SLOWEST])

    def watch(self) -> Iterator[Problem]:
        """What goes wrong, until the process has ended: by itself, by a crash, or killed because a case hangs."""
        seen, since = self._shared[_INDEX], time.monotonic()
        while True:
            try:
                if self._problems.poll(_POLL):
                    yield self._problems.recv()
            except EOFError:
                break
            self._measure()
            index = self._shared[_INDEX]
            if index != seen:
                seen, since = index, time.monotonic()
            elif index != _NOT_STARTED and time.monotonic() - since > _HANG:
                self._process.kill()
        self._process.join()
        if self._shared[_INDEX] == _NOT_STARTED:
            raise RuntimeError("a worker did not start")
        if code := self._process.exitcode:
            kind = "hang" if code == -signal.SIGKILL else f"crash, exit status {code}"
            yield kind, f"killed after {_HANG:g} s" if kind == "hang" else "", int(self._shared[_INDEX])

    def _measure(self) -> None:
        first, last = self._range
        if self._shared[_INDEX] < first + _WARM * (last - first):
            return
        try:
            resident = Usage.of([self._process.pid or 0]).resident
        except OSError:  # it has ended
            return
        self._warm = resident if self._warm is None else min(self._warm, resident)
        self.growth = resident - self._warm


def _work(
    make: Callable[[], Target],
    seed: int,
    cases: range,
    shared: SynchronizedArray[float],
    problems: Connection,
) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # Pillow tells of what it finds odd in a picture
    target = make()
    limit_memory(_MOST_MEMORY)
    for index in cases:
        shared[_INDEX] = index
        _run(target, seed, index, shared, problems)
    shared[_INDEX] = cases.stop


def _run(target: Target, seed: int, index: int, shared: SynchronizedArray[float], problems: Connection) -> None:
    data = target.case(seed, index)
    started = time.thread_time()
    try:
        target.run(data)
    except target.refusals:
        shared[_REFUSED] += 1
    except Exception as error:
        problems.send((_where(error), str(error)[:300], index))
    else:
        shared[_TAKEN] += 1
    seconds = time.thread_time() - started
    shared[_SLOWEST] = max(shared[_SLOWEST], seconds)
    if seconds > _MOST_SECONDS:
        problems.send(("slow", f"{seconds:.2f} s", index))


def _where(error: Exception) -> str:
    """Kind of the error and the line of ours that it came through last: what has one cause has one of these."""
    ours = [frame for frame in traceback.extract_tb(error.__traceback__) if "site-packages" not in frame.filename]
    return f"{type(error).__name__} at {Path(ours[-1].filename).name}:{ours[-1].lineno}"
