"""What is left open in the settings is read off the machine."""

from __future__ import annotations

import torch

from service.hardware import cores, pick_device, pick_dtype, pick_workers

CPU = torch.device("cpu")
CUDA = torch.device("cuda")


def test_what_is_given_is_taken() -> None:
    assert pick_device("cpu") == CPU
    assert pick_dtype("float16", CPU) == torch.float16
    assert pick_workers(3, CUDA) == 3


def test_one_forward_a_core_or_one_on_a_gpu() -> None:
    assert pick_workers(0, CPU) == cores() >= 1
    assert pick_workers(0, CUDA) == 1


def test_auto_is_a_device_and_a_type_that_compute() -> None:
    device = pick_device("auto")
    x = torch.ones(2, 2, dtype=pick_dtype("auto", device), device=device)
    assert (x @ x).sum().item() == 8
