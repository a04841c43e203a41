"""Batches through the real model: the same numbers as alone, timed against the forward without reduction."""

from __future__ import annotations

import dataclasses
import gc
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from counted import saving_of
from serving import Files, write_task
from small import METHODS, small_backbone, small_header

from fpet.errors import TaskError
from fpet.header import Method
from fpet.preprocess import Preprocessing
from fpet.task import Task
from service.engine import Engine
from service.metrics import Metrics
from service.model.loaded import LoadedTask
from service.model.work import BatchKey, Output, Work

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def metrics() -> Metrics:
    made = Metrics([], [])
    for name in ("digits", "plain"):
        made.add_task(name, 1)
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


def run(engine: Engine, task: LoadedTask, images: Sequence[torch.Tensor], *, reduced: bool = True) -> list[Output]:
    return engine.run(BatchKey(task.family, reduced), [Work(task, image) for image in images])


@pytest.mark.parametrize("reduced", [True, False])
def test_outputs_are_those_of_the_model(
    engine: Engine, small_files: Files, images: list[torch.Tensor], reduced: bool
) -> None:
    task = load(engine, small_files, "digits")
    outputs = run(engine, task, images, reduced=reduced)
    exact = Task.load(task.path).build(engine.backbone)
    model = exact if reduced else exact.unreduced()
    with torch.inference_mode():
        pixels = task.header.preprocessing.normalize(torch.stack(images), torch.float32)
        logits, embeddings = model(pixels), model.features(pixels)
    for i, output in enumerate(outputs):
        assert np.array_equal(output.logits, logits[i])
        assert np.array_equal(output.embedding, embeddings[i])
        np.testing.assert_allclose(output.probabilities, logits[i].softmax(dim=0), rtol=1e-5)


def test_reduction_changes_tokens_and_logits(engine: Engine, small_files: Files, images: list[torch.Tensor]) -> None:
    task = load(engine, small_files, "digits")
    assert (task.tokens_in, task.tokens_out) == (17, 9)
    with_it, without = run(engine, task, images), run(engine, task, images, reduced=False)
    assert not np.allclose(with_it[0].logits, without[0].logits, atol=1e-3)


def test_an_image_is_answered_alike_alone_and_in_company(
    engine: Engine, small_files: Files, images: list[torch.Tensor]
) -> None:
    task = load(engine, small_files, "digits")
    together = run(engine, task, images)
    for image, output in zip(images, together, strict=True):
        (alone,) = run(engine, task, [image])
        torch.testing.assert_close(output.logits, alone.logits, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("adapter", "reducer"), METHODS, ids=str)
def test_tasks_of_a_family_are_answered_together_as_alone(
    engine: Engine, tmp_path: Path, images: list[torch.Tensor], adapter: Method, reducer: Method
) -> None:
    """They differ in weights, numbers of labels and normalisation."""
    backbone, tasks = small_backbone(), []
    for i in range(3):
        header = dataclasses.replace(
            small_header(backbone, adapter, reducer),
            labels=tuple(map(str, range(2 + i))),
            preprocessing=Preprocessing((16, 16), mean=(0.1 * i, 0.5, 0.5)),
        )
        write_task(tmp_path / f"{i}.safetensors", header, backbone, seed=i)
        tasks.append(engine.load(Task.load(tmp_path / f"{i}.safetensors"), 1))
    order = [tasks[i] for i in (0, 2, 1, 0, 1)]
    families = {task.family for task in tasks}
    if adapter.kind == "full":  # as large as the backbone
        assert len(families) == 3
        return
    (family,) = families
    for reduced in (True, False):
        works = [Work(task, image) for task, image in zip(order, images, strict=True)]
        together = engine.run(BatchKey(family, reduced), works)
        for work, output in zip(works, together, strict=True):
            (alone,) = run(engine, work.task, [work.pixels], reduced=reduced)
            for name in ("logits", "probabilities", "embedding"):
                torch.testing.assert_close(getattr(output, name), getattr(alone, name), rtol=1e-4, atol=1e-4)


def test_a_batch_is_paid_for_in_proportion(
    engine: Engine, small_files: Files, metrics: Metrics, tmp_path: Path, images: list[torch.Tensor]
) -> None:
    first = load(engine, small_files, "digits")
    header = dataclasses.replace(small_header(small_backbone()), name="other")
    write_task(tmp_path / "other.safetensors", header, small_backbone(), seed=1)
    second = engine.load(Task.load(tmp_path / "other.safetensors"), 1)
    metrics.add_task("other", 1)
    works = [Work(second if i == 0 else first, image) for i, image in enumerate(images)]
    engine.run(BatchKey(first.family, True), works)
    one, four = saving_of(metrics, "other"), saving_of(metrics, "digits")
    assert (one.images, four.images) == (1, 4)
    assert (one.tokens_out, four.tokens_out) == (9, 36)
    assert four.forward_seconds == pytest.approx(4 * one.forward_seconds)


def test_half_precision_is_answered_in_float32(
    small_files: Files, metrics: Metrics, images: list[torch.Tensor]
) -> None:
    engine = Engine.start(small_files.backbone, torch.device("cpu"), torch.bfloat16, metrics)
    (output,) = run(engine, load(engine, small_files, "digits"), images[:1])
    assert output.logits.dtype == output.embedding.dtype == np.float32


def test_the_baseline_is_the_measured_time_scaled_by_the_calibrated_ratio(
    engine: Engine, small_files: Files, metrics: Metrics, images: list[torch.Tensor]
) -> None:
    task = load(engine, small_files, "digits")
    for size in (1, 4):
        engine.calibrate(task, size, repeats=3)
    calibration = task.family.timings.calibration(False)
    assert [point.batch_size for point in calibration.points] == [1, 4]
    run(engine, task, images[:4])
    run(engine, task, images[:4], reduced=False)
    saving = saving_of(metrics, "digits")
    assert (saving.images, saving.tokens_in, saving.tokens_out) == (4, 4 * 17, 4 * 9)
    assert saving.baseline_seconds == pytest.approx(saving.forward_seconds * calibration.ratios[1])


def test_what_ran_before_it_was_timed_has_its_baseline_afterwards(
    engine: Engine, small_files: Files, metrics: Metrics, images: list[torch.Tensor]
) -> None:
    task = load(engine, small_files, "digits")
    run(engine, task, images[:4])
    engine.calibrate(task, 1, repeats=1)  # which says nothing yet of four
    assert saving_of(metrics, "digits").baseline_seconds == 0
    engine.calibrate(task, 4, repeats=1)
    saving = saving_of(metrics, "digits")
    ratio = task.family.timings.calibration(False).ratios[1]
    assert saving.baseline_seconds == pytest.approx(saving.forward_seconds * ratio)


def test_timings_are_of_the_own_thread(engine: Engine, small_files: Files) -> None:
    task, started, stop = load(engine, small_files, "digits"), threading.Event(), threading.Event()

    def keep_the_interpreter() -> None:
        started.set()
        while not stop.is_set():
            pass

    with ThreadPoolExecutor(1) as pool:
        pool.submit(keep_the_interpreter)
        try:
            assert started.wait(timeout=20)
            own = passed = 0.0
            while own >= 0.9 * passed:  # until the other thread had the interpreter for a while
                before, began = time.thread_time(), time.perf_counter()
                timed = engine.seconds(BatchKey(task.family, True), task, 1)
                own, passed = time.thread_time() - before, time.perf_counter() - began
        finally:
            stop.set()
    assert timed <= own


def test_without_calibration_no_baseline_is_claimed(
    engine: Engine, small_files: Files, metrics: Metrics, images: list[torch.Tensor]
) -> None:
    task = load(engine, small_files, "digits")
    engine.calibrate(task, 1, repeats=0)
    run(engine, task, images)
    assert saving_of(metrics, "digits").baseline_seconds == 0


def test_a_task_without_a_reducer_saves_nothing(
    engine: Engine, small_files: Files, metrics: Metrics, images: list[torch.Tensor]
) -> None:
    task = load(engine, small_files, "plain")
    engine.calibrate(task, 1, repeats=3)
    run(engine, task, images)
    saving = saving_of(metrics, "plain")
    assert saving.baseline_seconds == saving.forward_seconds > 0


def test_tasks_of_one_structure_share_their_timings(engine: Engine, small_files: Files, tmp_path: Path) -> None:
    first = load(engine, small_files, "digits")
    engine.calibrate(first, 1, repeats=1)
    backbone = small_backbone()
    write_task(tmp_path / "other.safetensors", small_header(backbone), backbone, seed=1)
    second = engine.load(Task.load(tmp_path / "other.safetensors"), 1)
    assert second.family.timings.calibration(False) is first.family.timings.calibration(False)
    assert first.family.timings.calibration(False).points


def test_timings_outlast_the_last_task_of_a_family(engine: Engine, small_files: Files) -> None:
    engine.calibrate(load(engine, small_files, "digits"), 1, repeats=1)
    gc.collect()
    assert load(engine, small_files, "digits").family.timings.calibration(False).points


def test_a_task_whose_numbers_overflow_is_not_put_into_service(engine: Engine, small_files: Files) -> None:
    task = Task.load(small_files.tasks / "digits.safetensors")
    tensors = {**task.tensors, "head.weight": torch.full_like(task.tensors["head.weight"], 3e38)}
    with pytest.raises(TaskError, match=r"digits\.safetensors: .* not finite"):
        engine.load(dataclasses.replace(task, tensors=tensors), 1)


def test_a_task_for_other_images_is_not_put_into_service(engine: Engine, tmp_path: Path) -> None:
    backbone = small_backbone()
    write_task(tmp_path / "digits.safetensors", small_header(backbone), backbone)
    task = Task.load(tmp_path / "digits.safetensors")
    header = dataclasses.replace(task.header, preprocessing=Preprocessing(size=(32, 32)))
    with pytest.raises(TaskError, match=r"digits\.safetensors: the model cannot run on images of \(32, 32\)"):
        engine.load(dataclasses.replace(task, header=header), 1)


@pytest.mark.usefixtures("little_memory")
def test_a_task_that_needs_too_much_memory_is_not_put_into_service(engine: Engine, tmp_path: Path) -> None:
    backbone = small_backbone()
    header = small_header(backbone, Method("vpt-shallow", {"prompts": 40_000}), Method("ltmp"))
    write_task(tmp_path / "digits.safetensors", header, backbone)
    with pytest.raises(TaskError, match=r"digits\.safetensors: the model cannot run: .* memory"):
        engine.load(Task.load(tmp_path / "digits.safetensors"), 1)
