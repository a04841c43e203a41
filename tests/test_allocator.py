"""Memory that is freed is kept: counted where it shows, in the pages that the system hands out."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

_STEPS = """
import resource
import torch
from fpet.allocator import keep_freed_memory
if {kept}:
    keep_freed_memory()
for step in range(12):
    if step == 2:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    x = torch.ones(2**26, dtype=torch.uint8)
    for _ in range(4):
        x = x + 1
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
_PAGES = 10 * 5 * 2**26 // 4096  # of all the tensors that are counted


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="there is nothing to tell other C libraries")
@pytest.mark.parametrize("kept", [False, True])
def test_large_tensors_take_the_memory_of_earlier_ones(kept: bool) -> None:
    command = [sys.executable, "-c", _STEPS.format(kept=kept)]
    faults = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert faults < _PAGES / 5 if kept else faults >= _PAGES
