"""Gauges of the engine, the catalog and the settings, in the registry of `metrics`."""

from __future__ import annotations

from functools import partial
from typing import get_args

import torch

import fpet
from fpet.inference.reordered import reordered_bytes
from fpet.tensor_names import dtype_name
from service.catalog import Catalog
from service.engine import Engine
from service.metrics import Metrics
from service.model.folded import own_bytes
from service.model.loaded import resident_bytes
from service.settings import Settings
from service.tasks.entry import State


def add_gauges(metrics: Metrics, settings: Settings, engine: Engine, catalog: Catalog) -> None:
    """Adds fpet_build_info, fpet_processes, fpet_queue_limit, fpet_tasks and fpet_tasks_answering, and sets
    fpet_resident_bytes of all kinds but `folded`. The catalog is asked at every collection."""
    registry = metrics.registry
    registry.info(
        "build",
        "What serves: versions, and where and in which type it computes.",
        {
            "version": fpet.__version__,
            "torch": str(torch.__version__),
            "device": str(engine.device),
            "dtype": dtype_name(engine.dtype),
        },
    )
    registry.gauge("processes", "Processes that answer, and whose metrics these are.").set(1)
    limit = registry.gauge("queue_limit", "Places of the queue for images, beyond a batch of tasks that have none.")
    limit.set(settings.max_queue)
    tasks = registry.gauge(
        "tasks",
        "Tasks in the folder, by state; what was loaded before goes on answering while it is loading, or has failed.",
        "state",
    )
    for state in get_args(State):
        tasks.labels(state).set_function(partial(_count, catalog, state))
    answering = registry.gauge(
        "tasks_answering", "Tasks that answer, also those whose newer file is loading or failed."
    )
    answering.set_function(lambda: len(catalog.entries.serving()))
    metrics.resident_bytes.labels("backbone").set(own_bytes(engine.backbone.vit))
    metrics.resident_bytes.labels("reordered").set_function(lambda: reordered_bytes(engine.backbone.vit))
    metrics.resident_bytes.labels("tasks").set_function(lambda: resident_bytes(catalog.entries.serving()))
    metrics.resident_bytes.labels("unpacked").set_function(lambda: engine.unpacked.bytes)
    metrics.resident_bytes.labels("captured").set_function(lambda: engine.captures.bytes if engine.captures else 0)


def _count(catalog: Catalog, state: State) -> int:
    return sum(entry.state == state for entry in catalog.entries.all())
