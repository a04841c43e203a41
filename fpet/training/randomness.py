"""The state of the random number generators."""

from __future__ import annotations

from contextlib import AbstractContextManager

import torch


def random_state_kept(device: torch.device) -> AbstractContextManager[None]:
    """Gives back the random state of the CPU, and of the device if it is a GPU, as it was before."""
    return torch.random.fork_rng(devices=[device] if device.type == "cuda" else [], device_type="cuda")
