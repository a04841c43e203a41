"""Folding without the rest of the service."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from serving import Files, small_settings

from fpet.errors import TaskError
from fpet.files import read_bytes
from fpet.task import Task
from service.engine import Engine
from service.folding import Folding
from service.metrics import Metrics
from service.model.loaded import LoadedTask
from service.model.sizes import doublings
from service.model.work import BatchKey, Work

PIXELS = torch.randint(0, 256, (3, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


class FastFolded(Engine):
    """Whose seconds are a number for each image, the least with folded weights and token reduction."""

    full, reduced, folded_full, folded_reduced = 2.0, 1.0, 1.5, 0.5

    def seconds(self, group: BatchKey, task: LoadedTask, batch_size: int, *, several: bool = False) -> float:
        super().seconds(group, task, batch_size, several=several)
        if group.folded:
            return batch_size * (self.folded_reduced if group.reduced else self.folded_full)
        return batch_size * (self.reduced if group.reduced else self.full)


class SlowFolded(FastFolded):
    """Whose folded weights save nothing."""

    folded_reduced = 1.0


@dataclass
class Part:
    """Folding without the rest of the service, and what serves."""

    folding: Folding
    engine: Engine
    metrics: Metrics
    pool: ThreadPoolExecutor
    serving: list[LoadedTask]

    def serve(self, path: Path) -> LoadedTask:
        self.serving.append(self.engine.load(Task.load(path), 1))
        return self.serving[-1]

    def ask(self, task: LoadedTask, count: int, *, reduced: bool = True) -> None:
        """Batches of one image."""
        for _ in range(count):
            works, group = [Work(task, PIXELS)], self.folding.group(task, reduced=reduced)
            self.engine.run(group, works)
            self.folding.count(group, works)
        self.wait()

    def count(self, task: LoadedTask, images: int, beside: LoadedTask | None = None, own: int = 16) -> None:
        """Tells of that many images in batches, none of which is run; `own` of each are its own, the rest another's."""
        works = [Work(task, PIXELS)] * own + ([Work(beside, PIXELS)] * (16 - own) if beside else [])
        for _ in range(images // 16):
            self.folding.count(self.folding.group(task, reduced=True), works)
        self.wait()

    def wait(self) -> None:
        """Until all that was begun in the pool has ended; the timing of one size of batches begins that of the next."""
        for _ in range(1 + len(doublings(4))):
            self.pool.submit(int).result()

    def folded(self, task: LoadedTask) -> bool:
        return self.folding.state(task)[0] is not None

    def value(self, name: str, **labels: str) -> float:
        value = self.metrics.registry.get_sample_value(f"fpet_{name}", labels)
        assert value is not None
        return value


@contextmanager
def parts(
    files: Files, kind: type[Engine] = FastFolded, dtype: torch.dtype = torch.float32, **options: object
) -> Iterator[Part]:
    settings = small_settings(files, **{"folded_share": 0.01, "calibration_repeats": 1, **options})
    metrics, loaded = Metrics([], []), list[LoadedTask]()
    engine = kind.start(files.backbone, torch.device("cpu"), dtype, metrics)
    with ThreadPoolExecutor(1) as pool:
        folding = Folding(
            settings, metrics, engine, pool, lambda: loaded, read=lambda path: read_bytes(path, TaskError)
        )
        yield Part(folding, engine, metrics, pool, loaded)
