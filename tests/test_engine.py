"""Batches through the real model: the same numbers as alone, timed against the forward without reduction."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from serving import Files, write_task
from small import small_backbone, small_header

from fpet.errors import TaskError
from fpet.preprocess import Preprocessing
from fpet.task import Task
from service.engine import Engine, Group, LoadedTask
from service.metrics import Metrics, Saving

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def metrics() -> Metrics:
    made = Metrics([], [])
    for name in ("digits", "plain"):
        made.add_task(name)
    return made


@pytest.fixture
def engine(small_files: Files, metrics: Metrics) -> Engine:
    return Engine.start(small_files.backbone, torch.device("cpu"), torch.float32, metrics)


@pytest.fixture
def images() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randint(0, 256, (3, 16, 16), dtype=torch.uint8, generator=generator) for _ in range(5)]


def load(engine: Engine, files: Files, name: str) -> LoadedTask:
    return engine.load(Task.load(files.tasks / f"{name}.safetensors"), 1)


@pytest.mark.parametrize("reduced", [True, False])
def test_outputs_are_those_of_the_model(
    engine: Engine, small_files: Files, images: list[torch.Tensor], reduced: bool
) -> None:
    task = load(engine, small_files, "digits")
    outputs = engine.run(Group(task, reduced), images)
    model = task.reduced if reduced else task.full
    with torch.inference_mode():
        pixels = task.header.preprocessing.normalize(torch.stack(images), torch.float32)
        logits, embeddings = model(pixels), model.features(pixels)
    for i, output in enumerate(outputs):
        assert torch.equal(output.logits, logits[i])
        assert torch.equal(output.embedding, embeddings[i])
        torch.testing.assert_close(output.probabilities, logits[i].softmax(dim=0))


def test_reduction_changes_tokens_and_logits(engine: Engine, small_files: Files, images: list[torch.Tensor]) -> None:
    task = load(engine, small_files, "digits")
    assert (task.tokens_in, task.tokens_out) == (17, 9)
    with_it, without = engine.run(Group(task, True), images), engine.run(Group(task, False), images)
    assert not torch.allclose(with_it[0].logits, without[0].logits, atol=1e-3)


def test_an_image_is_answered_alike_alone_and_in_company(
    engine: Engine, small_files: Files, images: list[torch.Tensor]
) -> None:
    group = Group(load(engine, small_files, "digits"), True)
    together = engine.run(group, images)
    for image, output in zip(images, together, strict=True):
        (alone,) = engine.run(group, [image])
        torch.testing.assert_close(output.logits, alone.logits, atol=1e-5, rtol=1e-5)


def test_half_precision_is_answered_in_float32(
    small_files: Files, metrics: Metrics, images: list[torch.Tensor]
) -> None:
    engine = Engine.start(small_files.backbone, torch.device("cpu"), torch.bfloat16, metrics)
    (output,) = engine.run(Group(load(engine, small_files, "digits"), True), images[:1])
    assert output.logits.dtype == output.embedding.dtype == torch.float32


def test_the_baseline_is_the_measured_time_scaled_by_the_calibrated_ratio(
    engine: Engine, small_files: Files, metrics: Metrics, images: list[torch.Tensor]
) -> None:
    task = load(engine, small_files, "digits")
    for size in (1, 4):
        engine.calibrate(task, size, repeats=3)
    one, four = engine.calibration(task)
    assert (one.batch_size, four.batch_size) == (1, 4)
    engine.run(Group(task, True), images[:4])
    engine.run(Group(task, False), images[:4])
    saving = saving_of(metrics, "digits")
    assert (saving.images, saving.tokens_in, saving.tokens_out) == (4, 4 * 17, 4 * 9)
    assert saving.baseline_seconds == pytest.approx(saving.forward_seconds * four.ratio)


def test_without_calibration_no_baseline_is_claimed(
    engine: Engine, small_files: Files, metrics: Metrics, images: list[torch.Tensor]
) -> None:
    task = load(engine, small_files, "digits")
    engine.calibrate(task, 1, repeats=0)
    engine.run(Group(task, True), images)
    assert saving_of(metrics, "digits").baseline_seconds == 0


def test_a_task_without_a_reducer_saves_nothing(
    engine: Engine, small_files: Files, metrics: Metrics, images: list[torch.Tensor]
) -> None:
    task = load(engine, small_files, "plain")
    engine.calibrate(task, 1, repeats=3)
    engine.run(Group(task, True), images)
    saving = saving_of(metrics, "plain")
    assert saving.baseline_seconds == saving.forward_seconds > 0


def test_tasks_of_one_structure_share_their_timings(engine: Engine, small_files: Files, tmp_path: Path) -> None:
    first = load(engine, small_files, "digits")
    engine.calibrate(first, 1, repeats=1)
    backbone = small_backbone()
    write_task(tmp_path / "other.safetensors", small_header(backbone), backbone, seed=1)
    second = engine.load(Task.load(tmp_path / "other.safetensors"), 1)
    assert engine.calibration(second) == engine.calibration(first) != ()


def test_a_task_that_cannot_run_is_not_put_into_service(engine: Engine, tmp_path: Path) -> None:
    backbone = small_backbone()
    header = dataclasses.replace(small_header(backbone), preprocessing=Preprocessing(size=(32, 32)))
    write_task(tmp_path / "digits.safetensors", header, backbone)
    with pytest.raises(TaskError, match=r"digits\.safetensors: the model cannot run"):
        engine.load(Task.load(tmp_path / "digits.safetensors"), 1)


def saving_of(metrics: Metrics, task: str) -> Saving:
    (saving,) = [saving for saving in metrics.savings() if saving.task == task]
    return saving
