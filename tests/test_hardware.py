"""What is left open in the settings is read off the machine."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest
import torch

from fpet.hardware.cores import cores, quota
from fpet.hardware.precision import DTYPES
from service.hardware import name_dtype, pick_device, share_of_cores

CPU = torch.device("cpu")
CUDA = torch.device("cuda")


def test_a_given_device_and_dtype_are_used() -> None:
    assert pick_device("cpu") == CPU
    assert DTYPES[name_dtype("float16", CPU)] == torch.float16


V2, V1 = "sys/fs/cgroup", "sys/fs/cgroup/cpu"
LINES_V1 = "4:memory:/a\n3:cpuset:/\n2:cpu,cpuacct:/a/b\n0::/\n"
# What is in /proc/self/cgroup, in files of the control groups, and what follows.
QUOTAS: dict[str, tuple[str | None, dict[str, str], float]] = {
    "no files": (None, {}, math.inf),
    "no limit": ("0::/\n", {f"{V2}/cpu.max": "max 100000\n"}, math.inf),
    "half a core": ("0::/\n", {f"{V2}/cpu.max": "50000 100000\n"}, 0.5),
    "another period": ("0::/\n", {f"{V2}/cpu.max": "25000 10000\n"}, 2.5),
    "of the group itself": ("0::/a/b\n", {f"{V2}/a/b/cpu.max": "100 100\n"}, 1),
    "the least of those above": (
        "0::/a/b\n",
        {f"{V2}/a/b/cpu.max": "300 100\n", f"{V2}/a/cpu.max": "200 100\n", f"{V2}/cpu.max": "max 100\n"},
        2,
    ),
    "the path is the host's": ("0::/host/x\n", {f"{V2}/cpu.max": "200 100\n"}, 2),
    "of another group": ("0::/a\n", {f"{V2}/b/cpu.max": "100 100\n"}, math.inf),
    "not as expected": ("0::/\n", {f"{V2}/cpu.max": "100\n"}, math.inf),
    "version 1": (LINES_V1, {f"{V1}/a/b/cpu.cfs_quota_us": "150\n", f"{V1}/a/b/cpu.cfs_period_us": "100\n"}, 1.5),
    "version 1, no limit": (
        LINES_V1,
        {f"{V1}/a/b/cpu.cfs_quota_us": "-1\n", f"{V1}/a/b/cpu.cfs_period_us": "100\n"},
        math.inf,
    ),
    "version 1, the path is the host's": (
        LINES_V1,
        {f"{V1}/cpu.cfs_quota_us": "300\n", f"{V1}/cpu.cfs_period_us": "100\n"},
        3,
    ),
}


@pytest.mark.parametrize("name", QUOTAS)
def test_quotas_of_control_groups_count(name: str, tmp_path: Path) -> None:
    lines, files, expected = QUOTAS[name]
    for path, text in {**files, **({"proc/self/cgroup": lines} if lines else {})}.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    assert quota(tmp_path) == expected
    assert cores(tmp_path) == min(len(os.sched_getaffinity(0)), max(1, math.ceil(min(expected, 1000))))


def test_this_machine_has_a_core() -> None:
    assert 1 <= cores() <= len(os.sched_getaffinity(0))


def test_processes_share_the_cores() -> None:
    assert share_of_cores(1) == cores()
    assert share_of_cores(2) == max(1, cores() // 2)
    assert share_of_cores(10_000) == 1


def test_auto_is_a_device_and_a_type_that_compute() -> None:
    device = pick_device("auto")
    x = torch.ones(2, 2, dtype=DTYPES[name_dtype("auto", device)], device=device)
    assert (x @ x).sum().item() == 8
