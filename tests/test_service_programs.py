"""What serves on a CPU runs programs and answers as the forward in Python does; where it cannot, it serves as well."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from serving import Files, write_task
from small import ADAPTFORMER, BDM, small_backbone, small_header
from torch import Tensor

from fpet.header import Method
from fpet.inference import programs
from fpet.task import Task
from service.engine import Engine
from service.metrics import Metrics
from service.model.folded import Instance, make_instance
from service.model.loaded import LoadedTask
from service.model.programs import ProgramMaker
from service.model.work import BatchKey, Output, Work

pytestmark = pytest.mark.usefixtures("one_thread")
LORA = Method("lora", {"dim": 4})
LTMP = Method("ltmp", {"target": 0.5})
CPU = torch.device("cpu")


def start(files: Files) -> Engine:
    return Engine.start(files.backbone, CPU, torch.float32, Metrics([], []))


def write(folder: Path, name: str, seed: int, adapter: Method = ADAPTFORMER, reducer: Method = BDM) -> Task:
    backbone, path = small_backbone(), folder / f"{name}.safetensors"
    write_task(path, dataclasses.replace(small_header(backbone, adapter, reducer), name=name), backbone, seed)
    return Task.load(path)


def images(count: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(count)
    return [torch.randint(0, 256, (3, 16, 16), dtype=torch.uint8, generator=generator) for _ in range(count)]


def run(engine: Engine, tasks: Sequence[LoadedTask], reduced: bool, folded: Instance | None = None) -> list[Output]:
    works = [Work(task, image) for task, image in zip(tasks, images(len(tasks)), strict=True)]
    return engine.run(BatchKey(tasks[0].family, reduced, folded), works)


def assert_equal(found: Sequence[Output], expected: Sequence[Output]) -> None:
    for one, other in zip(found, expected, strict=True):
        assert np.array_equal(one.logits, other.logits)
        assert np.array_equal(one.embedding, other.embedding)


def programs_ran(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows with each batch that a program computes."""
    ran: list[int] = []
    features = programs.Program.features

    def counted(self: programs.Program, batch: programs.Batch) -> Tensor:
        ran.append(len(batch.images))
        return features(self, batch)

    monkeypatch.setattr(programs.Program, "features", counted)
    return ran


@pytest.mark.parametrize("reduced", [True, False])
@pytest.mark.parametrize("adapter", [ADAPTFORMER, LORA, Method("lora", {"dim": 16, "bits": 1})], ids=str)
def test_a_family_that_was_calibrated_runs_programs(
    small_files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, adapter: Method, reduced: bool
) -> None:
    engine, plain = start(small_files), start(small_files)
    tasks = [write(tmp_path, f"task-{seed}", seed, adapter) for seed in range(3)]
    own, others = ([each.load(task, 1) for task in tasks] for each in (engine, plain))
    engine.calibrate(own[0], 1, repeats=1, mixed=True)
    ran = programs_ran(monkeypatch)
    for order in ((0,), (1, 1, 1), (0, 1, 2), (2, 0)):
        found = run(engine, [own[i] for i in order], reduced)
        assert_equal(found, run(plain, [others[i] for i in order], reduced))
    assert ran == [1, 3, 3, 2]


def test_where_batches_are_of_one_task_those_of_several_are_left_alone(
    small_files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = start(small_files)
    first, second = (engine.load(write(tmp_path, f"task-{seed}", seed), 1) for seed in range(2))
    engine.calibrate(first, 1, repeats=1, mixed=False)
    ran = programs_ran(monkeypatch)
    run(engine, [first, second], reduced=True)
    run(engine, [second, second], reduced=True)
    assert ran == [2]


@pytest.mark.parametrize("reduced", [True, False])
def test_a_folded_task_runs_programs(
    small_files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reduced: bool
) -> None:
    engine = start(small_files)
    file = write(tmp_path, "task", 0, LORA)
    task = engine.load(file, 1)
    instance = make_instance(file.build(engine.backbone), engine.backbone.vit)
    traced = engine.program_maker.added_to(instance, "task")
    ran = programs_ran(monkeypatch)
    for count in (1, 3):
        found = run(engine, [task] * count, reduced, traced)
        assert_equal(found, run(engine, [task] * count, reduced, instance))
    assert ran == [1, 3]
    assert traced.bytes == instance.bytes


def test_a_family_without_a_program_is_warned_about_once(
    small_files: Files, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    engine = start(small_files)
    engine.backbone.vit.get_submodule("blocks.0.attn.qkv").register_forward_hook(lambda *_: None)
    task = engine.load(write(tmp_path, "task", 0, LORA), 1)
    with caplog.at_level(logging.WARNING):
        engine.calibrate(task, 1, repeats=1, mixed=True)
        engine.calibrate(task, 2, repeats=1, mixed=True)
    (record,) = caplog.records
    assert record.getMessage().startswith("tasks like task run in Python: ")
    assert all(output.finite for output in run(engine, [task], reduced=True))
    instance = make_instance(Task.load(task.path).build(engine.backbone), engine.backbone.vit)
    assert engine.program_maker.added_to(instance, "task") is instance
    assert caplog.messages[-1].startswith("the folded task task runs in Python: ")


def test_no_programs_are_made_where_token_counts_vary(small_files: Files, tmp_path: Path) -> None:
    engine = start(small_files)
    file = write(tmp_path, "task", 0, LORA, LTMP)
    task = engine.load(file, 1)
    assert not engine.program_maker.claim(task.family)
    instance = make_instance(file.build(engine.backbone), engine.backbone.vit)
    assert engine.program_maker.added_to(instance, "task") is instance
    assert {output.tokens <= 17 for output in run(engine, [task], reduced=True, folded=instance)} == {True}


def test_no_programs_are_made_on_a_gpu(small_files: Files, tmp_path: Path) -> None:
    engine = start(small_files)
    task, vit = engine.load(write(tmp_path, "task", 0), 1), engine.backbone.vit
    assert not ProgramMaker(torch.device("cuda"), vit).claim(task.family)
    assert ProgramMaker(CPU, vit).claim(task.family)
