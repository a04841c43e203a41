"""What does not fit into memory is refused in a sentence, before it is decoded where that can be known."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import pytest
import torch
from small import small_header
from torch import Tensor

from fpet.backbone import Backbone
from fpet.cli import main
from fpet.data import Dataset, Split
from fpet.errors import DataError
from fpet.hardware.room import lacked_memory, most_memory
from fpet.header import Method
from fpet.preprocess import Preprocessing
from fpet.task import new_model, save_task
from fpet.training.recipe import Recipe
from fpet.training.train import train
from fpet.untrained import preprocessing_of

pytestmark = pytest.mark.usefixtures("one_thread")

FREE = "MemTotal: 9 kB\nMemAvailable: 8 kB\n"
V2, V1 = "sys/fs/cgroup", "sys/fs/cgroup/memory"
# Files below the root of a system, and the bytes that follow.
SYSTEMS: dict[str, tuple[dict[str, str], float]] = {
    "no files": ({}, math.inf),
    "no groups": ({"proc/meminfo": FREE}, 8192),
    "no limit": ({"proc/meminfo": FREE, "proc/self/cgroup": "0::/\n", f"{V2}/memory.max": "max\n"}, 8192),
    "a group above": (
        {"proc/meminfo": FREE, "proc/self/cgroup": "0::/a/b\n", f"{V2}/a/memory.max": "5000\n"},
        5000,
    ),
    "the path is the host's": ({"proc/self/cgroup": "0::/host/x\n", f"{V2}/memory.max": "5000\n"}, 5000),
    "version 1": ({"proc/self/cgroup": "4:memory:/a\n0::/\n", f"{V1}/a/memory.limit_in_bytes": "7000\n"}, 7000),
}


@pytest.mark.parametrize("name", SYSTEMS)
def test_the_machine_and_its_groups_say_how_much_there_is(name: str, tmp_path: Path) -> None:
    files, expected = SYSTEMS[name]
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    assert most_memory(tmp_path) == expected


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
        RuntimeError("CUDA error: out of memory\nSearch for `cudaErrorMemoryAllocation' in"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    ],
)
def test_a_gpu_says_in_several_ways_that_it_is_full(error: Exception) -> None:
    assert lacked_memory(error)


def test_what_else_fails_on_a_gpu_is_not_its_memory() -> None:
    assert not lacked_memory(RuntimeError("CUDA error: an illegal memory access was encountered"))


class Undecoded:
    """More images than any machine holds, of which none may be looked at."""

    def __len__(self) -> int:
        return 10**6

    def __getitem__(self, index: int, /) -> Tensor:
        raise AssertionError(index)


def test_a_training_set_that_does_not_fit_is_refused_before_it_is_decoded(
    backbone: Backbone, digits: Dataset, tmp_path: Path
) -> None:
    endless = Split(Undecoded(), torch.zeros(10**6, dtype=torch.int64))
    data = dataclasses.replace(digits, train=endless)
    header = dataclasses.replace(small_header(backbone), preprocessing=Preprocessing(size=(1000, 2000)))
    message = r"digits has 1000040 training and validation images, .* at 1000 x 2000 pixels they take 6000.2 GB, and"
    with pytest.raises(DataError, match=message):
        train(header, backbone, data, Recipe(), tmp_path / "run.checkpoint")


@pytest.mark.usefixtures("little_memory")
def test_a_step_that_does_not_fit_is_one_line(
    backbone_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = ["--output", str(tmp_path / "a.safetensors"), "--backbone", str(backbone_file)]
    wide = ["--adapter-arguments", "dim=100000", "--batch-size", "800", "--epochs", "1"]  # 5 GB a step
    assert main(["train", "--name", "a", "--data", "digits", *output, *wide]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith("fpet: there is not enough memory; a smaller --batch-size takes less: ")
    assert "DefaultCPUAllocator" in said


@pytest.mark.usefixtures("little_memory")
def test_evaluate_out_of_memory_is_one_line(
    backbone: Backbone, backbone_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wide = dataclasses.replace(small_header(backbone), adapter=Method("adaptformer", {"dim": 20_000}))
    task = dataclasses.replace(wide, labels=tuple(map(str, range(10))), preprocessing=preprocessing_of(backbone))
    save_task(tmp_path / "wide.safetensors", task, new_model(task, backbone))
    options = ["--task", str(tmp_path / "wide.safetensors"), "--backbone", str(backbone_file), "--data", "digits"]
    assert main(["evaluate", *options, "--batch-size", "500"]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith("fpet: there is not enough memory; a smaller --batch-size takes less: ")
