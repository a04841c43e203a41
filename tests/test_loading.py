"""Tasks that are loaded at once become what they would have become one after the other."""

from __future__ import annotations

import dataclasses
import logging
import threading
from concurrent.futures import CancelledError, ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from catalogs import BACKBONE, catalog_of, scan
from serving import Files, serving, small_settings, write_task
from small import BDM, small_header

from fpet.header import Method
from fpet.task import Task
from service.catalog import Catalog
from service.engine import Engine
from service.metrics import Metrics
from service.model.loaded import LoadedTask

pytestmark = pytest.mark.usefixtures("one_thread")

# Two families: an argument that is not given counts as its default.
ADAPTERS = (Method("lora", {"dim": 8}), Method("lora"), Method("lora", {"dim": 3}))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Of twelve tasks."""
    folder = tmp_path / "tasks"
    for i in range(12):
        name, adapter = f"task-{i:02}", ADAPTERS[i % len(ADAPTERS)]
        header = dataclasses.replace(small_header(BACKBONE, adapter, BDM), name=name)
        write_task(folder / f"{name}.safetensors", header, BACKBONE, seed=i)
    return folder


def load_all(catalog: Catalog, threads: int) -> list[str]:
    """Loads all tasks; returns their states."""
    with ThreadPoolExecutor(threads) as pool:
        return [entry.state for entry in catalog.load_all([entry.name for entry in catalog.entries.all()], pool)]


def test_families_are_made_once(folder: Path) -> None:
    for _ in range(5):
        catalog = catalog_of(folder, Metrics([], []))
        assert load_all(catalog, threads=8) == ["loaded"] * 12
        assert len({task.family for task in catalog.entries.serving()}) == 2


def test_what_cannot_serve_keeps_no_other_from_serving(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    first, last = folder / "task-00.safetensors", folder / "task-11.safetensors"
    last.write_bytes(first.read_bytes())
    first.write_bytes(b"no task")
    metrics = Metrics([], [])
    catalog = catalog_of(folder, metrics)
    with caplog.at_level(logging.INFO):
        assert load_all(catalog, threads=3) == ["failed", *["loaded"] * 10, "failed"]
    reason = "task-11.safetensors: the file holds the task 'task-00', not 'task-11'"
    assert catalog.entries.require("task-11").reason == reason
    told = [record.getMessage().partition(":")[0] for record in caplog.records]
    in_service = [f"the task task-{i:02} is in service" for i in range(1, 11)]
    assert told == ["the task task-00 failed to load", *in_service, "the task task-11 failed to load"]
    loads = [metrics.registry.get_sample_value("fpet_task_loads_total", {"result": r}) for r in ("loaded", "failed")]
    assert loads == [10, 2]
    assert scan(catalog) == []  # all were looked at


def test_a_pool_that_is_shut_down_ends_it(folder: Path) -> None:
    begun, go = threading.Event(), threading.Event()
    engine = Engine(BACKBONE, torch.device("cpu"), torch.float32, Metrics([], []))

    def load(task: Task, generation: int) -> LoadedTask:
        begun.set()
        go.wait()
        return engine.load(task, generation)

    catalog = Catalog(folder, load, Metrics([], []), max_bytes=10**6)
    names = [entry.name for entry in catalog.entries.all()]
    with ThreadPoolExecutor(1) as pool, ThreadPoolExecutor(1) as loader:
        loading = loader.submit(catalog.load_all, names, pool)
        begun.wait()
        pool.shutdown(wait=False, cancel_futures=True)
        go.set()
        with pytest.raises((CancelledError, RuntimeError)):
            loading.result()
    assert len(catalog.entries.serving()) <= 1


def test_a_service_of_two_workers_loads_them_all(small_files: Files, folder: Path) -> None:
    settings = small_settings(Files(small_files.backbone, folder), workers=2, threads=1)
    with serving(settings) as service:
        tasks = service.runtime.catalog.entries.serving()
        assert [task.header.name for task in tasks] == [f"task-{i:02}" for i in range(12)]
        assert len({task.family for task in tasks}) == 2
