"""What torch is told about GPUs, which holds for the process."""

from __future__ import annotations

import subprocess
import sys

import pytest
from small import small_backbone

_TELL = """
import torch
from fpet.hardware.gpu import configure
{before}
configure({device!r})
cudnn = torch.backends.cudnn
print(torch.backends.cuda.cudnn_sdp_enabled(), cudnn.allow_tf32, cudnn.conv.fp32_precision)
"""
_ASKED_FOR = "torch.backends.fp32_precision = 'tf32'"


@pytest.mark.parametrize(
    ("before", "device", "left"),
    [
        ("", "cpu", "True True tf32"),
        ("", "cuda:1", "False False ieee"),
        (_ASKED_FOR, "cuda:1", "False False ieee"),
        (_ASKED_FOR.replace("backends", "backends.cudnn"), "cuda:1", "False False ieee"),
    ],
)
def test_configure_turns_off_cudnn_sdp_and_tf32(before: str, device: str, left: str) -> None:
    tell = _TELL.format(before=before, device=device)
    told = subprocess.check_output([sys.executable, "-W", "error", "-c", tell], text=True)
    assert told.strip() == left


def test_a_backbone_that_moves_there_tells_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    settled: list[object] = []
    monkeypatch.setattr("fpet.hardware.gpu.configure", settled.append)
    small_backbone().move("cpu")
    assert settled == ["cpu"]
