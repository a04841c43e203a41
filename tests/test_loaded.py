"""What tasks in service hold: each its own numbers, and what they have in common once."""

from __future__ import annotations

import dataclasses
import gc
import weakref
from pathlib import Path

import pytest
import torch
from serving import Files, write_task
from small import METHODS, small_backbone, small_header
from torch import Tensor

from fpet.header import Method
from fpet.task import Task
from service.engine import Engine
from service.metrics import Metrics
from service.model.loaded import LoadedTask, resident_bytes

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def engine(small_files: Files) -> Engine:
    return Engine.start(small_files.backbone, torch.device("cpu"), torch.bfloat16, Metrics([], []))


def load(engine: Engine, folder: Path, adapter: Method, reducer: Method) -> list[LoadedTask]:
    """Two tasks of one family with different weights and headers that are equal but for their names."""
    backbone, tasks = small_backbone(), []
    for seed in range(2):
        header = dataclasses.replace(small_header(backbone, adapter, reducer), name=f"task-{seed}")
        header.provenance["source"] = "a drawer"
        path = folder / f"{header.name}.safetensors"
        write_task(path, header, backbone, seed)
        tasks.append(engine.load(Task.load(path), 1))
    return tasks


def storages(*tensors: Tensor) -> dict[int, int]:
    return {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors}


@pytest.mark.parametrize(("adapter", "reducer"), METHODS, ids=str)
def test_the_bytes_told_are_those_that_are_held(
    engine: Engine, tmp_path: Path, adapter: Method, reducer: Method
) -> None:
    tasks = load(engine, tmp_path, adapter, reducer)
    held: dict[int, int] = {}
    for task in tasks:
        weights = engine.unpacked.weights(task)
        model = task.family.template.model(weights.flat)
        held |= storages(weights.head, *model.adapter.parameters(), *model.reducer.parameters())
        held |= storages(*model.adapter.buffers(), *model.reducer.buffers())
    held.pop(0, None)  # buffers of no length
    assert resident_bytes(tasks) == sum(held.values()) > 0
    numbers = sum(
        tensor.numel() for tensor in Task.load(tasks[0].path).build(small_backbone()).trainable().parameters()
    )
    assert 2 * numbers <= tasks[0].weights.nbytes < 2 * numbers + 64 * (len(list(Task.load(tasks[0].path).tensors)) + 1)


def test_what_tasks_have_in_common_is_held_once(engine: Engine, tmp_path: Path) -> None:
    first, second = load(engine, tmp_path, Method("lora"), Method("bdm", {"block": 0}))
    assert first.family is second.family
    for field in ("backbone", "adapter", "reducer", "labels", "preprocessing", "provenance"):
        assert getattr(first.header, field) is getattr(second.header, field), field
    assert (first.header.name, second.header.name) == ("task-0", "task-1")
    assert Task.load(second.path).header == second.header


def test_a_family_goes_with_its_last_task(engine: Engine, tmp_path: Path) -> None:
    tasks = load(engine, tmp_path, Method("lora"), Method("none"))
    family = weakref.ref(tasks[0].family)
    tasks.pop()
    gc.collect()
    assert family() is not None
    tasks.clear()
    gc.collect()
    assert family() is None
