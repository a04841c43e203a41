"""What a batch of several tasks needs has run before the service is ready."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from serving import Files, write_task
from small import small_backbone, small_header
from torch.utils.flop_counter import FlopCounterMode

from fpet.header import Method
from fpet.task import Task
from service.engine import Engine
from service.metrics import Metrics
from service.model.work import BatchKey

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize(("adapter", "mixed", "batches"), [("lora", True, 2), ("lora", False, 1), ("full", True, 1)])
def test_several_tasks_at_once_are_warmed_up_where_they_mix(
    small_files: Files, tmp_path: Path, adapter: str, mixed: bool, batches: int
) -> None:
    engine = Engine.start(small_files.backbone, torch.device("cpu"), torch.float32, Metrics([], []))
    path, backbone = tmp_path / "digits.safetensors", small_backbone()
    write_task(path, small_header(backbone, Method(adapter), Method("none")), backbone)
    task = engine.load(Task.load(path), 1)
    assert engine.program_maker.claim(task.family)  # which it does once: no program's forwards are counted below
    with FlopCounterMode(display=False) as counted:
        engine.calibrate(task, batch_size=4, repeats=0, mixed=mixed)
    # Of the one batch of the task, in which an adapter has no weight an image.
    with FlopCounterMode(display=False) as alone:
        engine.seconds(BatchKey(task.family, True), task, 4)
    assert counted.get_total_flops() == batches * alone.get_total_flops()
