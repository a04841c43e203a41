"""Tasks so small that a service of them spends its time on HTTP, not on their models."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from robustness import samples

NAMES = ("digits", "fashion-mnist")


def write_backbone(folder: Path) -> Path:
    """Writes their backbone and returns its file."""
    path = folder / "backbone.safetensors"
    path.write_bytes(samples.described_backbone(samples.backbone()))
    return path


def write_tasks(folder: Path) -> None:
    """Puts them into a folder, in the place of what it held under their names."""
    folder.mkdir(exist_ok=True)
    for name, data in task_files().items():
        (folder / f"{name}.safetensors").write_bytes(data)


@cache
def task_files() -> Mapping[str, bytes]:
    """A file for each name: one with one-bit weights that merges tokens, and one of another family."""
    backbone = samples.backbone()
    methods = zip(NAMES, samples.METHODS[: len(NAMES)], strict=True)
    return {name: samples.task(backbone, name, *method) for name, method in methods}
