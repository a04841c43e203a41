"""What torch is told about GPUs, which holds for the process."""

from __future__ import annotations

import subprocess
import sys

import pytest
from small import small_backbone

_TELL = """
import torch
from fpet.hardware.gpu import configure
configure({device!r})
print(torch.backends.cuda.cudnn_sdp_enabled(), torch.backends.cudnn.allow_tf32)
"""


@pytest.mark.parametrize(("device", "left"), [("cpu", "True True"), ("cuda:1", "False False")])
def test_configure_turns_off_cudnn_sdp_and_tf32(device: str, left: str) -> None:
    told = subprocess.check_output([sys.executable, "-W", "error", "-c", _TELL.format(device=device)], text=True)
    assert told.strip() == left


def test_a_backbone_that_moves_there_tells_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    settled: list[object] = []
    monkeypatch.setattr("fpet.hardware.gpu.configure", settled.append)
    small_backbone().move("cpu")
    assert settled == ["cpu"]
