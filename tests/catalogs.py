"""A catalog of a folder with a small backbone, without a service around it."""

from __future__ import annotations

from pathlib import Path

import torch
from small import small_backbone

from service.catalog import Catalog
from service.engine import Engine
from service.metrics import Metrics
from service.tasks.entry import Entry

BACKBONE = small_backbone()


def catalog_of(folder: Path, metrics: Metrics, *, keeps_content: bool = False) -> Catalog:
    load = Engine(BACKBONE, torch.device("cpu"), torch.float32, metrics).load
    return Catalog(folder, load, metrics, max_bytes=10**6, keeps_content=keeps_content)


def scan(catalog: Catalog) -> list[Entry]:
    """Looks at all that is due, and says what became of it."""
    return [entry for name in catalog.due() if (entry := catalog.reload_if_due(name))]
