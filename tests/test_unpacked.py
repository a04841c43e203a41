"""Packed tasks in service: dequantised when they are asked, within a budget, and answered as any other."""

from __future__ import annotations

import dataclasses
import gc
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pictures
import pytest
import torch
from serving import Files, serving, small_settings, write_task
from small import BDM, small_backbone, small_header

from fpet.header import Method
from fpet.inference.packed_weights import PackedWeights
from fpet.inference.task_weights import Weights
from fpet.task import Task
from service.engine import Engine
from service.metrics import Metrics
from service.model.batch_runner import BatchRunner
from service.model.loaded import LoadedTask, resident_bytes
from service.model.unpacked import Unpacked
from service.model.work import BatchKey, Output, Work

pytestmark = pytest.mark.usefixtures("one_thread")

IMAGES = torch.randint(0, 256, (12, 3, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
ORDER = (0, 1, 2, 0, 2, 1, 1, 0, 2, 2, 1, 0)


def write_low_bit(folder: Path, name: str, seed: int, bits: int = 1, dim: int = 32) -> Path:
    backbone, path = small_backbone(), folder / f"{name}.safetensors"
    header = small_header(backbone, Method("lora", {"dim": dim, "bits": bits}), BDM)
    write_task(path, dataclasses.replace(header, name=name), backbone, seed)
    return path


def load(files: Files, folder: Path, budget: int, bits: Sequence[int] = (1, 1, 1)) -> tuple[Engine, list[LoadedTask]]:
    engine = Engine.start(files.backbone, torch.device("cpu"), torch.float32, Metrics([], []), unpacked_bytes=budget)
    paths = [write_low_bit(folder, f"task-{seed}", seed, bits) for seed, bits in enumerate(bits)]
    return engine, [engine.load(Task.load(path), 1) for path in paths]


def unpacked_bytes(task: LoadedTask) -> int:
    assert isinstance(task.weights, PackedWeights)
    return task.weights.unpack().nbytes


def answers(engine: Engine, works: Sequence[Work]) -> list[Output]:
    return engine.run(BatchKey(works[0].task.family, reduced=True), works)


@pytest.mark.parametrize("room", [0, 1, 2, 3])
def test_packed_tasks_are_answered_in_one_batch_as_from_their_files(
    small_files: Files, tmp_path: Path, room: int
) -> None:
    """With room for that many of three, of which one has 2 bits a weight and one is not packed."""
    _, (task, *_) = load(small_files, tmp_path, 0)
    engine, tasks = load(small_files, tmp_path, room * unpacked_bytes(task), bits=(1, 2, 32))
    assert [type(task.weights) for task in tasks] == [PackedWeights, PackedWeights, Weights]
    works = [Work(tasks[i], image) for i, image in zip(ORDER, IMAGES, strict=True)]
    for _ in range(2):
        for work, output in zip(works, answers(engine, works), strict=True):
            model = Task.load(work.task.path).build(engine.backbone)
            with torch.inference_mode():
                logits = model(work.task.header.preprocessing.normalize(work.pixels[None], torch.float32))[0]
            np.testing.assert_allclose(output.logits, logits, rtol=1e-4, atol=1e-4)
    assert engine.unpacked.bytes == min(room, 2) * unpacked_bytes(task)


class Counted(Unpacked):
    """Notes who is asked for."""

    asked: list[LoadedTask]

    def weights(self, task: LoadedTask) -> Weights:
        self.asked.append(task)
        return super().weights(task)


def test_a_batch_dequantises_each_of_its_tasks_once(small_files: Files, tmp_path: Path) -> None:
    engine, tasks = load(small_files, tmp_path, 0)
    counted = Counted(0)
    counted.asked = []
    works = [Work(tasks[i], image) for i, image in zip(ORDER, IMAGES, strict=True)]
    BatchRunner(engine.device, engine.dtype, counted).run(BatchKey(tasks[0].family, True), works)
    assert counted.asked == tasks


def test_who_was_not_asked_for_the_longest_makes_room(small_files: Files, tmp_path: Path) -> None:
    _, (one, two, three) = load(small_files, tmp_path, 0)
    size = unpacked_bytes(one)
    unpacked = Unpacked(2 * size + size // 2)
    first, second = unpacked.weights(one), unpacked.weights(two)
    assert unpacked.weights(one) is first
    unpacked.weights(three)
    assert unpacked.bytes == 2 * size
    assert unpacked.weights(one) is first
    assert unpacked.weights(two) is not second
    assert torch.equal(unpacked.weights(two).flat, second.flat)


def test_large_weights_evict_several_small_ones(small_files: Files, tmp_path: Path) -> None:
    engine, (one, two, three) = load(small_files, tmp_path, 0)
    large = engine.load(Task.load(write_low_bit(tmp_path, "large", 0, dim=96)), 1)
    unpacked = Unpacked(unpacked_bytes(large) + unpacked_bytes(one))
    first, *_, last = [unpacked.weights(task) for task in (one, two, three)]
    assert unpacked.weights(one) is first  # nobody had to go yet
    assert unpacked.weights(three) is last
    unpacked.weights(large)
    assert unpacked.bytes == unpacked_bytes(large) + unpacked_bytes(three)
    assert unpacked.weights(three) is last


def test_without_room_nothing_is_kept(small_files: Files, tmp_path: Path) -> None:
    _, (task, *_) = load(small_files, tmp_path, 0)
    unpacked = Unpacked(unpacked_bytes(task) - 1)
    assert unpacked.weights(task) is not unpacked.weights(task)
    assert unpacked.bytes == 0


def test_memory_goes_with_the_task(small_files: Files, tmp_path: Path) -> None:
    engine, tasks = load(small_files, tmp_path, 2**20)
    held = resident_bytes(tasks)
    gone = weakref.ref(engine.unpacked.weights(tasks[0]).flat)
    assert engine.unpacked.bytes == 3 * unpacked_bytes(tasks[0]) > held
    del tasks[0]
    gc.collect()
    assert gone() is None
    assert engine.unpacked.bytes == 2 * unpacked_bytes(tasks[0])


def test_threads_ask_at_once(small_files: Files, tmp_path: Path) -> None:
    """Each gets its own task's numbers, however often they make room for each other."""
    _, tasks = load(small_files, tmp_path, 0)
    expected = [task.weights.unpack().flat for task in tasks if isinstance(task.weights, PackedWeights)]
    unpacked = Unpacked(unpacked_bytes(tasks[0]))

    def ask(i: int) -> bool:
        return torch.equal(unpacked.weights(tasks[i % 3]).flat, expected[i % 3])

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(ask, range(600)))
    assert unpacked.bytes == unpacked_bytes(tasks[0])


def test_the_service_holds_low_bit_tasks_in_less_than_their_files(small_files: Files, tmp_path: Path) -> None:
    folder, names = tmp_path / "tasks", [f"task-{seed}" for seed in range(4)]
    for seed, name in enumerate(names):
        write_low_bit(folder, name, seed)
    files = sum(path.stat().st_size for path in folder.iterdir())
    # With another number of threads the last digits would differ.
    settings = small_settings(Files(small_files.backbone, folder), unpacked_bytes=60_000, workers=1, threads=1)
    with serving(settings) as service:
        image = pictures.png(0)
        given = {name: service.classify(image, name, outputs="logits").json()["logits"] for name in names * 2}
        assert service.metric("resident_bytes", kind="tasks") < files
        size = unpacked_bytes(service.runtime.catalog.entries.loaded(names[0]))
        assert 2 * size <= 60_000 < 3 * size
        assert service.metric("resident_bytes", kind="unpacked") == 2 * size
    with serving(settings.model_copy(update={"unpacked_bytes": 0})) as service:
        for name in names:
            assert service.classify(image, name, outputs="logits").json()["logits"] == given[name]
        assert service.metric("resident_bytes", kind="unpacked") == 0
