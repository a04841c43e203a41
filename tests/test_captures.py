"""Captured forwards in the engine: taken where they are faster, and otherwise as if there were none."""

from __future__ import annotations

import dataclasses
import gc
import logging
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from live_graphs import Broken, Garbled, LiveGraphs, OldWeights, Stale, Timed
from serving import Files, small_settings, write_task
from small import ADAPTFORMER, BDM, IN_ALL_BLOCKS, small_backbone, small_header
from torch import Tensor, nn

from fpet.errors import UnsupportedError
from fpet.header import Method
from fpet.task import Task
from service.app import create_app
from service.engine import Engine
from service.metrics import Metrics
from service.metrics_snapshot import MetricsSnapshot
from service.model.captures import Captures
from service.model.loaded import LoadedTask
from service.model.work import BatchKey, Output, Work

pytestmark = pytest.mark.usefixtures("one_thread", "now")
LOW_BIT = Method("lora", {"dim": 16, "bits": 1})


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The clock, which stands still unless a test lets it go on: so a replay takes as long as what it replays."""
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    return now


class Machine:
    """An engine, and what it counted."""

    def __init__(self, files: Files, graphs: LiveGraphs) -> None:
        self.metrics = Metrics([], [])
        self.graphs, self.captures = graphs, Captures(graphs)
        cpu = torch.device("cpu")
        self.engine = Engine.start(files.backbone, cpu, torch.float32, self.metrics, captures=self.captures)
        self.plain = Engine.start(files.backbone, cpu, torch.float32, Metrics([], []))

    def load(self, path: Path) -> tuple[LoadedTask, LoadedTask]:
        """The task in this engine, and in one without captures."""
        task = Task.load(path)
        return self.engine.load(task, 1), self.plain.load(task, 1)

    def calibrate(self, task: LoadedTask, *sizes: int, mixed: bool = True) -> None:
        for size in sizes:
            self.engine.calibrate(task, size, repeats=1, mixed=mixed)

    def batches(self, path: str) -> float:
        return MetricsSnapshot(self.metrics.registry).value("batches_total", path=path)


@pytest.fixture
def machine(small_files: Files) -> Machine:
    return Machine(small_files, LiveGraphs())


def write(folder: Path, name: str, seed: int, adapter: Method = ADAPTFORMER, reducer: Method = BDM) -> Path:
    backbone, path = small_backbone(), folder / f"{name}.safetensors"
    write_task(path, dataclasses.replace(small_header(backbone, adapter, reducer), name=name), backbone, seed)
    return path


def images(count: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(count)
    return [torch.randint(0, 256, (3, 16, 16), dtype=torch.uint8, generator=generator) for _ in range(count)]


def run(engine: Engine, tasks: Sequence[LoadedTask], reduced: bool = True) -> list[Output]:
    works = [Work(task, image) for task, image in zip(tasks, images(len(tasks)), strict=True)]
    return engine.run(BatchKey(tasks[0].family, reduced), works)


def assert_same(found: Sequence[Output], expected: Sequence[Output]) -> None:
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.logits, other.logits, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(one.embedding, other.embedding, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("reduced", [True, False])
@pytest.mark.parametrize("adapter", [ADAPTFORMER, LOW_BIT], ids=str)
def test_batches_of_any_size_have_the_same_answers(
    machine: Machine, tmp_path: Path, adapter: Method, reduced: bool
) -> None:
    pairs = [machine.load(write(tmp_path, f"task-{seed}", seed, adapter)) for seed in range(3)]
    machine.calibrate(pairs[0][0], 1, 2, 4)
    for order in ((0,), (1, 1, 1), (0, 1, 2), (2, 0), (1, 2, 2, 0), (2, 2)):
        own, plain = [pairs[i][0] for i in order], [pairs[i][1] for i in order]
        assert_same(run(machine.engine, own, reduced), run(machine.plain, plain, reduced))
    assert machine.batches("captured") == 6


def test_a_task_that_comes_later_needs_no_capture(machine: Machine, tmp_path: Path) -> None:
    first, _ = machine.load(write(tmp_path, "first", 0))
    machine.calibrate(first, 2)
    captured = machine.graphs.captured
    second, plain = machine.load(write(tmp_path, "second", 1))
    machine.calibrate(second, 2)
    assert_same(run(machine.engine, [second, second]), run(machine.plain, [plain, plain]))
    assert (machine.graphs.captured, machine.batches("captured")) == (captured, 1)


def test_what_is_slower_is_not_replayed(small_files: Files, tmp_path: Path, now: list[float]) -> None:
    machine = Machine(small_files, Timed(now, 0.001))
    task, plain = machine.load(write(tmp_path, "task", 0))
    machine.calibrate(task, 2)
    assert_same(run(machine.engine, [task, task]), run(machine.plain, [plain, plain]))
    assert (machine.batches("captured"), machine.batches("mixed")) == (0, 1)


@pytest.mark.parametrize(
    ("replay", "expected"), [(0.004, [1, 2, 3, 4, 5]), (0.0099, [1, 2, 3, 4, 5]), (None, [1, 2, 4])]
)
def test_the_next_larger_one_is_taken_if_that_saves_time(
    small_files: Files, tmp_path: Path, now: list[float], replay: float | None, expected: list[int]
) -> None:
    """By a clock that goes on by 10 ms with a forward that is launched, or, where a replay takes as long as the forward
    it repeats, by 10 ms an image."""
    machine = Machine(small_files, Timed(now, replay))
    task, _ = machine.load(write(tmp_path, "task", 0))
    layer = machine.engine.backbone.vit.get_submodule("blocks.0.attn.qkv")

    def passed(_: nn.Module, inputs: tuple[Tensor, ...], *__: object) -> None:
        now[0] += 0.01 if replay else 0.01 * len(inputs[0])

    layer.register_forward_hook(passed)
    machine.calibrate(task, 1, 2, 4, 8)
    taken = []
    for count in range(1, 6):
        before = machine.batches("captured")
        run(machine.engine, [task] * count)
        taken += [count] * int(machine.batches("captured") - before)
    assert taken == expected


@pytest.mark.parametrize(
    ("adapter", "reducer"), [(ADAPTFORMER, Method("ltmp", IN_ALL_BLOCKS["ltmp"])), (Method("full"), BDM)], ids=str
)
def test_families_that_vary_in_tokens_or_do_not_mix_are_never_captured(
    machine: Machine, tmp_path: Path, adapter: Method, reducer: Method
) -> None:
    task, plain = machine.load(write(tmp_path, "task", 0, adapter, reducer))
    machine.calibrate(task, 2)
    assert_same(run(machine.engine, [task, task]), run(machine.plain, [plain, plain]))
    assert (machine.graphs.captured, machine.batches("captured"), machine.captures.bytes) == (0, 0, 0)


@pytest.mark.parametrize(
    ("graphs", "reason"),
    [
        (Broken(), "operation not permitted"),
        (Stale(), "its embeddings differ"),
        (OldWeights(), "its embeddings differ"),
        (Garbled(), "its embeddings differ by nan"),
    ],
)
def test_what_cannot_be_captured_serves_as_before(
    small_files: Files,
    tmp_path: Path,
    graphs: LiveGraphs,
    reason: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    machine = Machine(small_files, graphs)
    task, plain = machine.load(write(tmp_path, "task", 0))
    with caplog.at_level(logging.WARNING):
        machine.calibrate(task, 2, 2, 4)
    (record,) = caplog.records
    assert record.getMessage().startswith(f"forwards are not captured any more: {reason}")
    assert_same(run(machine.engine, [task, task]), run(machine.plain, [plain, plain]))
    assert (machine.batches("captured"), machine.captures.bytes) == (0, 0)


def test_what_was_captured_is_not_prepared_for_again(machine: Machine, tmp_path: Path) -> None:
    """Every look at the folder times families again: a packed task would be dequantised each time."""
    task, _ = machine.load(write(tmp_path, "task", 0))
    assert machine.captures.wants(task.family, 2)
    machine.calibrate(task, 2)
    assert not machine.captures.wants(task.family, 2)
    assert machine.captures.wants(task.family, 4)


def test_captures_go_with_their_family_and_come_back_with_it(machine: Machine, tmp_path: Path) -> None:
    path = write(tmp_path, "task", 0)
    task, _ = machine.load(path)
    machine.calibrate(task, 1, 2)
    weights = machine.engine.unpacked.weights(task)
    assert machine.captures.bytes == 3 * (weights.flat.nbytes + 3 * 16 * 16 * 4)
    captured = machine.graphs.captured
    del task
    gc.collect()
    assert machine.captures.bytes == 0
    task, _ = machine.load(path)
    machine.calibrate(task, 1, 2)
    run(machine.engine, [task, task])
    assert (machine.graphs.captured, machine.batches("captured")) == (2 * captured, 1)


def test_a_cpu_has_no_graphs(small_files: Files) -> None:
    with pytest.raises(UnsupportedError, match="cuda_graphs is for a GPU, and the service is on the cpu"):
        create_app(small_settings(small_files, cuda_graphs=True))
