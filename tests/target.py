"""The device that tests of the GPU, and with `TEST_DEVICE` those of the service too, run on."""

from __future__ import annotations

import os

import pytest
import torch

_ASKED = os.environ.get("TEST_DEVICE")
SERVED = _ASKED or "cpu"  # by the service of the tests
DEVICE = _ASKED or "cuda"
needs_it = pytest.mark.skipif(
    DEVICE == "cuda" and not torch.cuda.is_available(), reason="needs a GPU, or TEST_DEVICE=cpu to be tried without"
)
