"""Paths are text or path-like wherever Python code names a task or a backbone."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from small import small_backbone, small_header

from fpet.backbone import load_backbone, save_backbone
from fpet.errors import BackboneError, TaskError
from fpet.task import Task, new_model, save_task, save_tensors

Form = Callable[[Path], str | os.PathLike[str]]


class Named(os.PathLike[str]):
    """A path that is none of pathlib's."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __fspath__(self) -> str:
        return str(self.path)


@pytest.mark.parametrize("form", [str, Named, Path])
def test_a_path_has_any_form(form: Form, tmp_path: Path) -> None:
    backbone = small_backbone()
    header = small_header(backbone)
    first, second, weights = (tmp_path / f"{name}.safetensors" for name in ("first", "second", "weights"))
    save_backbone(form(weights), backbone)
    assert load_backbone(form(weights)).fingerprint == backbone.fingerprint
    save_task(form(first), header, new_model(header, backbone))
    task = Task.load(form(first))
    assert (task.path, task.header.labels) == (first, header.labels)
    assert Task.parse(first.read_bytes(), form(second)).path == second
    save_tensors(form(second), header, task.tensors, backbone)
    assert second.read_bytes() == first.read_bytes()
    weights.write_bytes(b"nothing")
    with pytest.raises(BackboneError, match=f"^{weights}: neither safetensors"):
        load_backbone(form(weights))
    with pytest.raises(TaskError, match=f"^{weights}: not a complete safetensors file"):
        Task.load(form(weights))
