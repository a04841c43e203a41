"""How many processor cores this process may use."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from fpet.hardware.control_groups import control_groups


def cores(system: Path = Path("/")) -> int:
    """Processor cores that this process may use, by its affinity and by the quotas of its control groups, rounded up.

    system: the root of the file system, in which the kernel says so.
    """
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, math.ceil(min(allowed, quota(system))))


def quota(system: Path = Path("/")) -> float:
    """Seconds of processor time a second that this process may use by its control groups; infinity: no limit."""
    return min(_quotas(system), default=math.inf)


def _quotas(system: Path) -> Iterator[float]:
    """That of each control group around this process that has one."""
    for version, folder in control_groups("cpu", system):
        # Where a file is missing, or is not as expected, nothing is known of a limit.
        with suppress(OSError, ValueError, ZeroDivisionError):
            yield (_quota_v1 if version == 1 else _quota_v2)(folder)


def _quota_v1(folder: Path) -> float:
    quota = int((folder / "cpu.cfs_quota_us").read_text())
    return math.inf if quota < 0 else quota / int((folder / "cpu.cfs_period_us").read_text())


def _quota_v2(folder: Path) -> float:
    quota, period = (folder / "cpu.max").read_text().split()
    return math.inf if quota == "max" else int(quota) / int(period)
