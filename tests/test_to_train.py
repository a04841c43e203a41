"""A task from its file goes on: it trains, or is saved with other labels."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from small import METHODS, perturb, small_backbone, small_header

from fpet.backbone import create_backbone
from fpet.errors import TaskError, UnsupportedError
from fpet.header import HeadSpec, Method
from fpet.linear import LowBitLinear
from fpet.task import Task, new_model, save_task, save_tensors

HEAD = HeadSpec()
LOW_BITS = [
    (Method(kind, {"dim": 8, "bits": bits}), Method("bdm", {"block": 0, "dim": 4}))
    for kind in ("lora", "adaptformer")
    for bits in (1, 2, 4, 8)
]


def saved(folder: Path, adapter: Method, reducer: Method, head: HeadSpec = HEAD) -> Task:
    """Of random weights, away from those that a model starts with."""
    backbone = small_backbone()
    header = dataclasses.replace(small_header(backbone, adapter, reducer), head=head)
    torch.manual_seed(0)
    model = new_model(header, backbone)
    perturb(model.trainable(), 0.1)
    save_task(folder / "digits.safetensors", header, model)
    return Task.load(folder / "digits.safetensors")


@pytest.mark.parametrize(("adapter", "reducer"), [*METHODS, *LOW_BITS], ids=str)
def test_a_task_trains_on_from_its_weights(adapter: Method, reducer: Method, tmp_path: Path) -> None:
    task, backbone = saved(tmp_path, adapter, reducer), small_backbone()
    model, images = task.to_train(backbone), torch.randn(4, 3, 16, 16)
    fresh = new_model(task.header, backbone)
    trained = {name for name, parameter in fresh.named_parameters() if parameter.requires_grad}
    assert {name for name, parameter in model.named_parameters() if parameter.requires_grad} == trained
    with torch.no_grad():
        expected = task.build(backbone)(images)
        atol = 5e-3 if adapter.arguments.get("bits") == 8 else 1e-5
        torch.testing.assert_close(model.eval()(images), expected, rtol=0, atol=atol)
    before = {name: parameter.clone() for name, parameter in model.trainable().named_parameters()}
    optimizer = torch.optim.SGD(model.trainable().parameters(), lr=0.1)
    tokens, sizes = model.train().encode(images)
    loss = model.head(model.pool(tokens)).square().sum() + model.reducer.penalty(sizes)
    loss.backward()
    optimizer.step()
    moved = {name for name, parameter in model.trainable().named_parameters() if not parameter.equal(before[name])}
    assert {f"head.{name}" for name in ("weight", "bias")} <= moved
    save_task(tmp_path / "more.safetensors", task.header, model)
    with torch.no_grad():
        again = Task.load(tmp_path / "more.safetensors").build(backbone)(images)
        torch.testing.assert_close(again, model.eval()(images), rtol=0, atol=1e-5)


@pytest.mark.parametrize("bits", [1, 32])
def test_a_task_is_saved_with_other_labels(bits: int, tmp_path: Path) -> None:
    head = HeadSpec(bits, bias=bits == 32)
    task, backbone = saved(tmp_path, Method("lora"), Method("bdm", {"block": 0, "dim": 4}), head), small_backbone()
    header = dataclasses.replace(task.header, name="letters", labels=tuple("abcdefghij"))
    save_tensors(tmp_path / "letters.safetensors", header, task.tensors, backbone)
    other = Task.load(tmp_path / "letters.safetensors")
    assert other.header == header
    assert other.tensors.keys() == task.tensors.keys()
    assert all(torch.equal(other.tensors[name], tensor) for name, tensor in task.tensors.items())
    fewer = dataclasses.replace(header, labels=("a", "b"))
    with pytest.raises(ValueError, match=r"'head\."):
        save_tensors(tmp_path / "fewer.safetensors", fewer, task.tensors, backbone)
    another = create_backbone(backbone.architecture, backbone.arguments)
    with pytest.raises(TaskError, match=r"others\.safetensors: the task belongs to the backbone"):
        save_tensors(tmp_path / "others.safetensors", header, task.tensors, another)
    assert not (tmp_path / "others.safetensors").exists()


def test_low_bit_weights_of_a_model_that_was_built_are_not_saved_and_what_to_do_is_said(tmp_path: Path) -> None:
    task, backbone = saved(tmp_path, Method("lora"), Method("bdm", {"block": 0, "dim": 4})), small_backbone()
    low_bit = [one for one in task.to_train(backbone).modules() if isinstance(one, LowBitLinear) and one.bits == 1]
    assert low_bit
    assert all(layer.latent for layer in low_bit)
    with pytest.raises(UnsupportedError, match=r"save what Task\.to_train makes"):
        save_task(tmp_path / "again.safetensors", task.header, task.build(backbone))
