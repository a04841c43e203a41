"""Tasks of one method and different scales are of one family, and answer as before."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from serving import Files, write_task
from small import ADAPTFORMER, BDM, METHODS, perturb, small_backbone, small_header
from torch import Tensor

from fpet.adapters import ADAPTERS
from fpet.adapters.base import Adapter
from fpet.errors import TaskError
from fpet.header import Method
from fpet.inference.mixed import Template, family
from fpet.inference.packed_weights import PackedWeights
from fpet.inference.task_weights import Weights
from fpet.inference.unit_scale import at_unit_scale
from fpet.registry import keyword_parameters
from fpet.task import Task, new_model, save_task
from service.engine import Engine
from service.metrics import Metrics
from service.model.work import BatchKey, Work

pytestmark = pytest.mark.usefixtures("one_thread")
IMAGES = torch.randn((6, 3, 16, 16), generator=torch.Generator().manual_seed(0))
SCALED = [(adapter, reducer) for adapter, reducer in METHODS if "scale" in keyword_parameters(ADAPTERS[adapter.kind])]
LOW_BIT = [(Method("lora", {"dim": 4, "bits": 1}), BDM), (Method("adaptformer", {"dim": 4, "bits": 8}), BDM)]


def written(folder: Path, adapter: Method, reducer: Method = BDM, seed: int = 0) -> Task:
    """A task of these methods as its file has it."""
    backbone = small_backbone()
    torch.manual_seed(seed)
    header = small_header(backbone, adapter, reducer)
    model = new_model(header, backbone)
    perturb(model.trainable(), 0.3)
    path = folder / f"{seed}.safetensors"
    save_task(path, header, model)
    return Task.load(path)


def with_arguments(method: Method, **arguments: object) -> Method:
    return Method(method.kind, {**method.arguments, **arguments})


def changed(task: Task, *, adapter: Method | None = None, tensors: dict[str, Tensor] | None = None) -> Task:
    header = dataclasses.replace(task.header, adapter=adapter or task.header.adapter)
    return dataclasses.replace(task, header=header, tensors={**task.tensors, **(tensors or {})})


def features(task: Task) -> Tensor:
    with torch.inference_mode():
        return task.build(small_backbone()).features(IMAGES)


@pytest.mark.parametrize(("adapter", "reducer"), [*SCALED, *LOW_BIT], ids=str)
@pytest.mark.parametrize("scale", [0.25, 3, -1.0])
def test_it_answers_as_before(adapter: Method, reducer: Method, scale: float, tmp_path: Path) -> None:
    task = written(tmp_path, with_arguments(adapter, scale=scale), reducer)
    same = at_unit_scale(task)
    torch.testing.assert_close(features(same), features(task), rtol=1e-4, atol=1e-4)
    assert not torch.allclose(features(changed(task, adapter=adapter)), features(task), atol=1e-2)  # so it matters
    assert same.header.adapter.arguments["scale"] == 1.0
    assert family(same.header) == family(written(tmp_path, adapter, reducer).header) != family(task.header)


@pytest.mark.parametrize("kind", ADAPTERS)
def test_every_method_with_a_scale_says_which_weights_it_scales(kind: str, tmp_path: Path) -> None:
    """And only such weights as it has."""
    method: type[Adapter] = ADAPTERS[kind]
    assert bool(method.scaled) is ("scale" in keyword_parameters(method))
    names = written(tmp_path, Method(kind), Method("none")).tensors
    for ending in method.scaled:
        assert any(re.fullmatch(rf"adapter\..*\.{re.escape(ending)}", name) for name in names)


def test_each_image_has_the_features_of_its_own_task(tmp_path: Path) -> None:
    scales = (0.1, 1.0, 10.0)
    tasks = [written(tmp_path, with_arguments(ADAPTFORMER, scale=scale), seed=i) for i, scale in enumerate(scales)]
    models = [at_unit_scale(task).build(small_backbone()) for task in tasks]
    weights = [Weights.of(model) for model in models]
    with torch.inference_mode():
        together = Template(models[0]).features(weights * 2, IMAGES)
    alone = torch.stack([features(tasks[i % 3])[i] for i in range(len(IMAGES))])
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-4)


def test_the_service_has_them_share_a_batch(small_files: Files, metrics: Metrics, tmp_path: Path) -> None:
    engine = Engine.start(small_files.backbone, torch.device("cpu"), torch.float32, metrics)
    backbone, made = small_backbone(), []
    for scale in (1.0, 0.1, 10.0):
        path = tmp_path / f"{scale}.safetensors"
        write_task(path, small_header(backbone, with_arguments(ADAPTFORMER, scale=scale)), backbone, seed=1)
        made.append(engine.load(Task.load(path), 1))
    assert all(task.family is made[0].family for task in made)
    pixels = torch.randint(0, 256, (5, 3, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    outputs = engine.run(BatchKey(made[0].family, True), [Work(task, image) for task in made for image in pixels])
    for task, own in zip(made, (outputs[:5], outputs[5:10], outputs[10:]), strict=True):
        images = task.header.preprocessing.normalize(pixels, torch.float32)
        logits = Task.load(task.path).build(backbone)(images)
        np.testing.assert_allclose(np.stack([one.logits for one in own]), logits.numpy(), rtol=1e-4, atol=1e-4)
    assert [task.header.adapter.arguments["scale"] for task in made] == [1.0, 0.1, 10.0]  # as the files say


def test_codes_are_unpacked_to_the_very_numbers_of_the_model(tmp_path: Path) -> None:
    task = at_unit_scale(written(tmp_path, Method("lora", {"dim": 4, "bits": 1, "scale": 0.3})))
    model = task.build(small_backbone())
    assert torch.equal(PackedWeights.of(model, task.tensors).unpack().flat, Weights.of(model).flat)


@pytest.mark.parametrize(
    "arguments",
    [
        {"dim": 4},
        {"dim": 4, "scale": 1},
        {"dim": 4, "scale": "0.5"},
        {"dim": 4, "scale": None},
        {"dim": 4, "scale": True},
    ],
)
def test_what_has_no_scale_to_be_rid_of_is_left_alone(arguments: dict[str, Any], tmp_path: Path) -> None:
    task = changed(written(tmp_path, ADAPTFORMER), adapter=Method("adaptformer", arguments))
    assert at_unit_scale(task) is task


@pytest.mark.parametrize("method", [Method("ssf"), Method("unheard-of", {"scale": 0.5})], ids=str)
def test_methods_that_scale_no_weights_are_left_alone(method: Method, tmp_path: Path) -> None:
    task = changed(written(tmp_path, ADAPTFORMER), adapter=method)
    assert at_unit_scale(task) is task


def test_bytes_in_the_place_of_numbers_are_refused_as_before(tmp_path: Path) -> None:
    task = written(tmp_path, with_arguments(ADAPTFORMER, scale=0.5))
    name = "adapter.blocks.0.up.weight"
    wrong = changed(task, tensors={name: torch.ones_like(task.tensors[name], dtype=torch.uint8)})
    with pytest.raises(TaskError, match=f"{re.escape(repr(name))} is uint8"):
        at_unit_scale(wrong).build(small_backbone())
