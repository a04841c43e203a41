"""What the engine does not put into service: a timm that computes something else, a task that cannot answer."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from serving import Files
from timm.models.vision_transformer import Block

from fpet.errors import BackboneError, TaskError
from fpet.task import Task
from service.engine import Engine
from service.metrics import Metrics
from service.model.loaded import LoadedTask
from service.model.work import BatchKey


@pytest.fixture
def start(small_files: Files) -> Callable[[], Engine]:
    return lambda: Engine.start(small_files.backbone, torch.device("cpu"), torch.float32, Metrics([], []))


def test_a_timm_that_computes_something_else_is_not_served_with(
    start: Callable[[], Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    forward = Block.forward
    monkeypatch.setattr(Block, "forward", lambda *call, **options: 1.01 * forward(*call, **options))
    with pytest.raises(BackboneError, match="differs from timm's"):
        start()


@pytest.mark.parametrize("reduced", [True, False])
def test_a_task_that_fails_in_either_way_is_not_put_into_service(
    start: Callable[[], Engine], small_files: Files, monkeypatch: pytest.MonkeyPatch, reduced: bool
) -> None:
    engine = start()
    check = engine.check

    def fails(group: BatchKey, task: LoadedTask) -> None:
        if group.reduced is reduced:
            raise RuntimeError("not enough memory")
        check(group, task)

    monkeypatch.setattr(engine, "check", fails)
    with pytest.raises(TaskError, match=r"digits\.safetensors: the model cannot run: not enough memory"):
        engine.load(Task.load(small_files.tasks / "digits.safetensors"), 1)
