"""What goes wrong with some bytes in every way that robustness.files is to find."""

from __future__ import annotations

import os
import time

from fpet.errors import TaskError
from robustness.mutate import mutate
from robustness.targets import Target

_ABORT, _FOREIGN, _SLOW, _OURS, _TAKEN = range(5)
_KINDS = (_ABORT, _FOREIGN, _SLOW, _OURS, _OURS, _OURS, _TAKEN, _TAKEN, _TAKEN, _TAKEN)


def bad_target() -> Target:
    """Most mutations leave the byte in the middle as it is, which says what is to happen."""
    return Target(tuple(bytes([kind]) * 201 for kind in _KINDS), mutate, _run, (TaskError,))


def _run(data: bytes) -> None:
    match data[100] if len(data) > 100 else _TAKEN:
        case 0:
            os.abort()
        case 1:
            raise KeyError("not ours")
        case 2:
            end = time.thread_time() + 1.1
            while time.thread_time() < end:
                pass
        case 3:
            raise TaskError("ours")
