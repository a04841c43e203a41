"""What is refused before it is trained, when it is saved or when it is built, since it would fail only later."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from serving import Files
from small import ARCHITECTURE, ARGUMENTS, perturb, small_backbone, small_header

from fpet.backbone import Backbone
from fpet.errors import TaskError, UnsupportedError
from fpet.header import BackboneRef, HeadSpec, Method, TaskHeader
from fpet.preprocess import Preprocessing
from fpet.task import Task, new_model, save_task
from fpet.untrained import new_header
from fpet.vit import AdaptedViT


def header_of(backbone: Backbone, /, **changes: Any) -> TaskHeader:
    methods = Method("lora", {"dim": 4, "bits": 1}), Method("bdm", {"block": 1, "dim": 8})
    return dataclasses.replace(small_header(backbone, *methods), **{"labels": ("apple", "fig", "plum"), **changes})


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        (
            {"adapter": Method("lora", {"dim": 4, "bits": 1, "scale": 7.0})},
            "adapter has scale = 7.0 in the header, but 1",
        ),
        (
            {"adapter": Method("adaptformer", {"dim": 4, "bits": 1})},
            "adapter is 'adaptformer' in the header, but 'lora'",
        ),
        ({"reducer": Method("bdm", {"block": 0, "dim": 8})}, "reducer has block = 0 in the header, but 1"),
        ({"labels": ("apple", "fig")}, "2 labels but 'head.bias' has 3 rows"),
        ({"head": HeadSpec(bits=8)}, "'head.weight' belongs to nothing"),
        ({"preprocessing": Preprocessing((32, 32))}, r"images of (32, 32), only of (16, 16)"),
        (
            {"backbone": BackboneRef(ARCHITECTURE, ARGUMENTS, "0" * 64)},
            "belongs to the backbone vit_tiny_patch16_224 0000",
        ),
        (
            {"backbone": BackboneRef(ARCHITECTURE, {**ARGUMENTS, "img_size": 32}, "0" * 64)},
            f"; its was made with { {**ARGUMENTS, 'img_size': 32} }, this one with {ARGUMENTS}",
        ),
    ],
)
def test_a_header_of_another_model_is_refused_when_saving(
    tmp_path: Path, backbone: Backbone, changes: dict[str, Any], named: str
) -> None:
    model = new_model(header_of(backbone), backbone)
    with pytest.raises(TaskError, match=re.escape(named)):
        save_task(tmp_path / "fruit.safetensors", header_of(backbone, **changes), model)
    assert not list(tmp_path.iterdir())


def test_the_same_weights_in_another_architecture_are_another_backbone(tmp_path: Path, backbone: Backbone) -> None:
    """With another activation, say. What follows a dot in a name of timm only says which weights it would load."""
    model, own = new_model(header_of(backbone), backbone), header_of(backbone).backbone
    other = header_of(backbone, backbone=dataclasses.replace(own, architecture="vit_tiny_patch16_gelu"))
    with pytest.raises(TaskError, match=f"a backbone of vit_tiny_patch16_gelu, not of {ARCHITECTURE}$"):
        save_task(tmp_path / "fruit.safetensors", other, model)
    tagged = header_of(backbone, backbone=dataclasses.replace(own, architecture=f"{ARCHITECTURE}.augreg_in21k"))
    save_task(tmp_path / "fruit.safetensors", tagged, model)
    assert Task.load(tmp_path / "fruit.safetensors").build(backbone).backbone is backbone


def test_a_model_that_does_not_say_its_methods_is_not_saved(tmp_path: Path, backbone: Backbone) -> None:
    made = new_model(header_of(backbone), backbone)
    model = AdaptedViT(backbone, made.adapter, made.reducer, made.head)
    with pytest.raises(TaskError, match="does not say its methods"):
        save_task(tmp_path / "fruit.safetensors", header_of(backbone), model)


def test_labels_in_a_list_are_those_of_the_file(backbone: Backbone) -> None:
    header = dataclasses.replace(small_header(backbone), labels=["a", "b"])  # type: ignore[arg-type]
    assert TaskHeader.from_json(header.to_json()) == header


def test_what_a_header_was_made_of_may_change(backbone: Backbone) -> None:
    """As where a search for the scale goes on with the same dictionary."""
    arguments: dict[str, Any] = {"scale": 0.1}
    header = small_header(backbone, Method("lora", arguments))
    merged = Method("tome", {"r": (pairs := [1, 1])})
    model, before = new_model(header, backbone), header.to_json()
    arguments["scale"], pairs[0] = 10.0, 5
    assert header.to_json() == before
    assert model.methods is not None
    assert model.methods[0].arguments == {"scale": 0.1}
    assert merged.arguments == {"r": [1, 1]}


def test_an_argument_counts_as_its_default_where_it_is_left_out(tmp_path: Path, backbone: Backbone) -> None:
    spelled = Method("lora", {"dim": 4, "bits": 1, "scale": 1, "targets": "q+v"})
    model, path = new_model(header_of(backbone), backbone), tmp_path / "fruit.safetensors"
    perturb(model.trainable(), 0.3)
    save_task(path, header_of(backbone, adapter=spelled), model)
    loaded, images = Task.load(path), torch.randn(2, 3, 16, 16)
    assert loaded.header.adapter == Method("lora", {**spelled.arguments, "dropout": 0.1})
    with torch.inference_mode():
        assert torch.equal(loaded.build(backbone)(images), model.eval()(images))


def test_a_model_is_of_the_dtype_of_its_backbone(tmp_path: Path) -> None:
    backbone = small_backbone()
    header, path = header_of(backbone), tmp_path / "fruit.safetensors"
    save_task(path, header, new_model(header, backbone))
    task = Task.load(path)
    with torch.inference_mode():
        assert task.build(backbone)(torch.zeros(1, 3, 16, 16)).dtype == torch.float32
    backbone.move("cpu", torch.bfloat16)
    with torch.inference_mode():
        assert task.build(backbone)(torch.zeros(1, 3, 16, 16, dtype=torch.bfloat16)).dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"labels": "abc"}, "labels 'abc' is not a tuple of texts"),
        ({"labels": (1, 2, 3)}, "is not a tuple of texts"),
        ({"labels": {"apple": 0, "fig": 1}}, "is not a tuple of texts"),
        ({"labels": None}, "labels None is not a tuple of texts"),
        ({"name": 5}, "name 5 is not 1 to 64"),
        ({"labels": ("\ud800",)}, "no text in Unicode"),
        ({"adapter": "lora"}, "adapter 'lora' is not a Method"),
        ({"adapter": Method("lora", {"scale": torch.nan})}, "scale = nan should be above 0"),
        (
            {"adapter": Method("lora", {"dim": np.int64(4)})},
            r"header\.adapter\.arguments\.dim is of type int64, which JSON does not hold",
        ),
        ({"head_bits": 32.0}, r"header\.head\.bits is not of type int"),
    ],
)
def test_what_no_file_could_say_is_refused_before_a_training(
    backbone: Backbone, changes: dict[str, Any], named: str
) -> None:
    methods = {"adapter": Method("lora"), "reducer": Method("none")}
    given = {"name": "fruit", "labels": ("apple", "fig"), **methods, **changes}
    with pytest.raises((TaskError, UnsupportedError), match=named):
        new_header(backbone=backbone, **given)


@pytest.mark.parametrize(
    ("provenance", "named"),
    [({2026: "won"}, "the name of a field of header.provenance is no text: 2026"), ({"of": {1}}, "of is of type set")],
)
def test_provenance_that_json_does_not_hold_is_refused_when_saving(
    tmp_path: Path, backbone: Backbone, provenance: dict[Any, Any], named: str
) -> None:
    header = header_of(backbone, provenance=provenance)
    with pytest.raises(TaskError, match=named):
        save_task(tmp_path / "fruit.safetensors", header, new_model(header, backbone))


@pytest.mark.usefixtures("little_memory")
def test_a_file_of_few_bytes_that_asks_for_a_model_of_many_is_refused_without_making_it(small_files: Files) -> None:
    task = Task.load(small_files.tasks / "digits.safetensors")
    wide = dataclasses.replace(task.header, adapter=Method("adaptformer", {"dim": 10**7}))
    with pytest.raises(TaskError, match=r"down\.weight' is float32 \[4, 24\] instead of float32 \[10000000, 24\]$"):
        dataclasses.replace(task, header=wide).build(small_backbone())
