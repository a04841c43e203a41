"""Signals to a process in which nothing needs an orderly shutdown, or nothing yet."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_ENDING = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Within the block a signal ends the process at once, as it would by default, also if the process is the first of a
    container: for that one the kernel's default is to do nothing. Signals that are ignored stay so."""
    if threading.current_thread() is not threading.main_thread():  # others cannot listen
        yield
        return
    before = {one: signal.signal(one, _end) for one in _ENDING if signal.getsignal(one) is signal.SIG_DFL}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def listen_no_longer() -> None:
    """Ends what `ended_by_signals` does, within its block: for who then listens for signals, and may raise again what
    was received."""
    for one in _ENDING:
        if signal.getsignal(one) is _end:
            signal.signal(one, signal.SIG_DFL)


def _end(number: int, _: object) -> None:
    signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)
    sys.exit(128 + number)  # it is the first
