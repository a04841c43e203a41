"""Tasks at rest: their low-bit weights stay codes, and come back to the very numbers."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from serving import write_task
from small import ARCHITECTURE, ARGUMENTS, BDM, small_backbone, small_header
from torch import nn

from fpet.backbone import Backbone, create_backbone
from fpet.header import HeadSpec, Method
from fpet.inference.mixed import Template
from fpet.inference.packed_weights import PackedWeights, at_rest
from fpet.inference.task_weights import Weights
from fpet.linear import LowBitLinear
from fpet.packing import check_tensors, pack_module, quantised_layers
from fpet.quantize import BITS
from fpet.task import Task
from fpet.vit import AdaptedViT

pytestmark = pytest.mark.usefixtures("one_thread")

PLAIN = HeadSpec()
# Widths that fill no cache line among them.
ADAPTERS = [Method(kind, {"dim": dim}) for kind in ("lora", "adaptformer") for dim in (3, 8)]


def low_bit(
    path: Path,
    adapter: Method,
    bits: int,
    dtype: torch.dtype,
    *,
    head: HeadSpec = PLAIN,
    seed: int = 0,
    backbone: Backbone | None = None,
) -> tuple[Task, AdaptedViT]:
    """A task and its model, as loaded from its file; the reducer has one bit a weight."""
    backbone = backbone or small_backbone()
    method = Method(adapter.kind, {**adapter.arguments, "bits": bits})
    header = dataclasses.replace(small_header(backbone, method, BDM), head=head)
    write_task(path, header, backbone, seed)
    backbone.vit.to(dtype)
    task = Task.load(path)
    return task, task.build(backbone)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("head", [PLAIN, HeadSpec(bits=2), HeadSpec(bits=1, bias=False)], ids=str)
@pytest.mark.parametrize("bits", [*BITS, 32])
@pytest.mark.parametrize("adapter", ADAPTERS, ids=str)
def test_what_is_unpacked_is_what_was_packed(
    tmp_path: Path, adapter: Method, bits: int, head: HeadSpec, dtype: torch.dtype
) -> None:
    task, model = low_bit(tmp_path / "a.safetensors", adapter, bits, dtype, head=head)
    weights, unpacked = Weights.of(model), PackedWeights.of(model, task.tensors).unpack()
    assert unpacked.nbytes == weights.nbytes
    assert unpacked.head.dtype == unpacked.flat.dtype == dtype
    for one, other in zip(weights, unpacked, strict=True):
        assert (one is None) == (other is None)
        assert one is None or other is None or torch.equal(one, other)
    layers = quantised_layers(model.trainable())
    assert {layer.bits for layer in layers.values()} == {1, bits, head.bits} - {32}
    for name in layers:  # and those of the file, rounded once
        parameter = dict(model.trainable().named_parameters())[name]
        assert len(parameter.unique()) <= 2 ** layers[name].bits


@pytest.mark.parametrize("bits", BITS)
def test_the_last_byte_may_hold_more_codes_than_there_are_weights(tmp_path: Path, bits: int) -> None:
    backbone = create_backbone(ARCHITECTURE, {**ARGUMENTS, "embed_dim": 21})  # no multiple of it fills whole bytes
    adapter = Method("lora", {"dim": 3})
    task, model = low_bit(
        tmp_path / "a.safetensors", adapter, bits, torch.float32, head=HeadSpec(bits), backbone=backbone
    )
    assert any(layer.weight.numel() * bits % 8 for layer in quantised_layers(model.trainable()).values()) == (bits < 8)
    weights, unpacked = Weights.of(model), PackedWeights.of(model, task.tensors).unpack()
    images = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        embeddings, same = (Template(model).features([one, one], images) for one in (weights, unpacked))
        assert torch.equal(embeddings, same)
        assert torch.equal(weights.logits(embeddings), unpacked.logits(embeddings))


def test_codes_are_held_as_they_lie_in_the_file(tmp_path: Path) -> None:
    task, model = low_bit(tmp_path / "a.safetensors", Method("lora", {"dim": 32}), 1, torch.bfloat16)
    packed = at_rest(model, task.tensors)
    assert isinstance(packed, PackedWeights)
    codes = sum(tensor.nbytes for name, tensor in task.tensors.items() if name.endswith(".codes"))
    others = sum(tensor.numel() for name, tensor in task.tensors.items() if not name.endswith((".codes", ".stats")))
    assert (packed.codes.nbytes, packed.kept.nbytes) == (codes, 2 * others)
    assert packed.nbytes == codes + 2 * others + 8 * len(quantised_layers(model.trainable()))
    assert packed.nbytes < sum(tensor.nbytes for tensor in task.tensors.values())
    assert 5 * packed.nbytes < Weights.of(model).nbytes


@pytest.mark.parametrize(("bits", "packs"), [(1, True), (8, False), (32, False)])
def test_only_what_saves_half_is_packed(tmp_path: Path, bits: int, packs: bool) -> None:
    """A byte a weight is half of bfloat16, without the means and deviations."""
    task, model = low_bit(tmp_path / "a.safetensors", Method("lora", {"dim": 32}), bits, torch.bfloat16)
    assert isinstance(at_rest(model, task.tensors), PackedWeights if packs else Weights)


def test_a_task_without_low_bit_weights_is_held_as_it_computes(tmp_path: Path) -> None:
    backbone = small_backbone()
    write_task(
        tmp_path / "a.safetensors", small_header(backbone, Method("lora", {"bits": 32}), Method("none")), backbone
    )
    task = Task.load(tmp_path / "a.safetensors")
    assert isinstance(at_rest(task.build(backbone), task.tensors), Weights)


def test_a_file_holds_float32_whatever_the_module_computes_in() -> None:
    module = nn.Sequential(nn.Linear(4, 3), LowBitLinear(3, 2, bits=1)).to(torch.bfloat16)
    tensors = pack_module(module)
    check_tensors(module, tensors)
    assert {tensor.dtype for tensor in tensors.values()} == {torch.float32, torch.uint8}


def test_how_tasks_are_arranged_is_held_once(tmp_path: Path) -> None:
    made = [low_bit(tmp_path / f"{i}.safetensors", ADAPTERS[0], 1, torch.float32, seed=i) for i in range(2)]
    first, second = (PackedWeights.of(model, task.tensors) for task, model in made)
    assert first.arrangement is second.arrangement
    assert not torch.equal(first.codes, second.codes)
