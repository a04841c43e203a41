"""What torch is told about GPUs, which holds for the process."""

from __future__ import annotations

import subprocess
import sys

import pytest

_TELL = """
import torch
from fpet.gpu import settle
settle({device!r})
print(torch.backends.cuda.cudnn_sdp_enabled(), torch.backends.cudnn.allow_tf32)
"""


@pytest.mark.parametrize(("device", "left"), [("cpu", "True True"), ("cuda:1", "False False")])
def test_a_gpu_makes_no_plans_and_rounds_no_float32(device: str, left: str) -> None:
    told = subprocess.check_output([sys.executable, "-W", "error", "-c", _TELL.format(device=device)], text=True)
    assert told.strip() == left
