"""A folded task is a plain timm checkpoint."""

from __future__ import annotations

import dataclasses
import functools
import json
import operator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import timm
import torch
from small import ARCHITECTURE, ARGUMENTS, perturb, small_backbone, small_header

from fpet.adapters import ADAPTERS
from fpet.adapters.repadapter import RepAdapter
from fpet.backbone import Backbone, create_backbone, save_backbone
from fpet.cli import main
from fpet.errors import UnsupportedError
from fpet.folding import fold
from fpet.header import HeadSpec, Method
from fpet.linear import LowBitLinear
from fpet.task import Task, new_model, save_task
from fpet.timm_checkpoint import timm_state
from fpet.vit import AdaptedViT

REPADAPTER = Method("repadapter", {"dim": 4})
IMAGES = torch.randn((2, 3, 16, 16), generator=torch.Generator().manual_seed(0))


def make_task(folder: Path, backbone: Backbone, head_bits: int = 32) -> Path:
    """A RepAdapter task with weights that matter, beside its backbone."""
    save_backbone(folder / "backbone.safetensors", backbone)
    header = dataclasses.replace(
        small_header(backbone, adapter=REPADAPTER), head=HeadSpec(bits=head_bits, bias=head_bits == 32)
    )
    torch.manual_seed(0)
    model = new_model(header, backbone)
    for parameter in model.trainable().parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    save_task(folder / "digits.safetensors", header, model)
    return folder / "digits.safetensors"


@pytest.fixture
def task(tmp_path: Path) -> Path:
    return make_task(tmp_path, small_backbone())


def command(task: Path) -> list[str]:
    backbone, output = task.parent / "backbone.safetensors", task.parent / "folded.safetensors"
    return ["fold", "--task", str(task), "--backbone", str(backbone), "--output", str(output)]


@pytest.mark.parametrize(("more", "head_bits"), [({}, 32), ({"norm_eps": 0.1}, 32), ({}, 1)])  # of one bit: no bias
def test_stock_timm_makes_it_as_printed_and_answers_alike(
    more: dict[str, object], head_bits: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    backbone = create_backbone(ARCHITECTURE, {**ARGUMENTS, **more}, small_backbone().vit.state_dict())
    task = make_task(tmp_path, backbone, head_bits)
    assert main(command(task)) == 0
    _, _, printed = capsys.readouterr().out.partition(": ")
    stock = eval(printed, {"timm": timm, "functools": functools}).eval()
    with torch.inference_mode():
        expected = Task.load(task).build(backbone).unreduced()(IMAGES)
        torch.testing.assert_close(stock(IMAGES), expected, rtol=1e-4, atol=1e-4)


def test_a_file_that_is_there_is_not_overwritten(task: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (task.parent / "folded.safetensors").write_text("mine")
    assert main(command(task)) == 2
    assert "it is there already" in capsys.readouterr().err
    assert (task.parent / "folded.safetensors").read_text() == "mine"


@pytest.mark.parametrize("name", ["folded.pt", "folded"])
def test_a_name_that_timm_takes_for_another_format_is_refused(
    name: str, task: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command(task), "--output", str(task.parent / name)]) == 2
    assert f"{name}: a folded task's name ends in .safetensors" in capsys.readouterr().err
    assert not (task.parent / name).exists()


@pytest.mark.parametrize(
    ("adapter", "said"),
    [
        ("adaptformer", "AdaptFormer does not fold: it does more than change layers by affine maps"),
        ("vpt-shallow", "VPTShallow does not fold: its prompts are tokens, which the backbone has no weights for"),
        ("vpt-deep", "VPTDeep does not fold: its prompts are tokens, which the backbone has no weights for"),
    ],
)
def test_an_adapter_that_does_not_fold_says_why_and_writes_nothing(
    adapter: str, said: str, task: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = EntryPoint("broken", "missing:Method", "fpet.adapters")  # of an installed package
    monkeypatch.setitem(vars(ADAPTERS), "_installed", {"broken": broken})
    backbone = small_backbone()
    header = small_header(backbone, adapter=Method(adapter))
    save_task(task, header, new_model(header, backbone))
    assert main(command(task)) == 2
    kinds = "bitfit, fact-tk, fact-tt, full, lora, none, repadapter, ssf"
    assert capsys.readouterr().err == f"fpet: {said}; train with an adapter that folds: {kinds}\n"
    assert not (task.parent / "folded.safetensors").exists()


def test_both_heads_of_a_distilled_backbone_get_the_classifier() -> None:
    arguments = {**ARGUMENTS, "num_heads": 3}
    backbone = create_backbone("deit_tiny_distilled_patch16_224", arguments)
    model = new_model(small_header(backbone, adapter=REPADAPTER, reducer=Method("none")), backbone)
    assert isinstance(model.head, LowBitLinear)
    state = timm_state(fold(model))
    stock = timm.create_model("deit_tiny_distilled_patch16_224", num_classes=10, **arguments).eval()
    stock.load_state_dict(state)
    with torch.inference_mode():
        torch.testing.assert_close(stock(IMAGES), model.eval()(IMAGES), rtol=1e-4, atol=1e-4)


def test_what_the_adapter_leaves_alone_is_shared_and_nothing_is_added() -> None:
    backbone = create_backbone(ARCHITECTURE, {**ARGUMENTS, "qkv_bias": False})
    model = new_model(small_header(backbone, adapter=Method("lora", {"dropout": 0.9})), backbone).train()
    perturb(model.trainable(), 0.3)
    with torch.autocast("cpu", torch.bfloat16):  # it folds in float64 all the same
        once = fold(model)
    again = fold(model)
    assert once.backbone.fingerprint == again.backbone.fingerprint  # nothing is dropped, as in training
    frozen, folded = (dict(vit.named_parameters()) for vit in (backbone.vit, once.vit))
    assert folded.keys() == frozen.keys()  # there still is no bias of queries, keys and values
    changed = {name for name, value in folded.items() if value is not frozen[name]}
    assert changed == {f"blocks.{block}.attn.qkv.weight" for block in range(2)}


def test_methods_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["methods"]) == 0
    table = capsys.readouterr().out
    assert "block,dim=32,bits=1,dropout=0.1,refine=True,stop_gradient=True" in table
    assert main(["methods", "--json"]) == 0
    assert {row["kind"] for row in json.loads(capsys.readouterr().out)} >= {"lora", "tome"}


def test_a_head_straight_from_training_is_written_rounded() -> None:
    backbone = small_backbone()
    header = dataclasses.replace(small_header(backbone, REPADAPTER, Method("none")), head=HeadSpec(bits=1, bias=False))
    model = new_model(header, backbone).eval()
    assert isinstance(model.head, LowBitLinear)
    assert torch.equal(timm_state(fold(model))["head.weight"], model.head.effective_weight())


def test_folding_leaves_the_mode_of_training() -> None:
    model = new_model(small_header(small_backbone(), REPADAPTER), small_backbone()).train()
    folded = fold(model)
    assert all(part.training for part in model.trainable().modules())
    assert not any(part.training for part in folded.modules())
    assert {id(value) for value in folded.head.parameters()} == {id(value) for value in model.head.parameters()}


def test_a_folded_model_folds_into_itself() -> None:
    once = fold(new_model(small_header(small_backbone(), REPADAPTER), small_backbone()))
    again = fold(once)
    assert again.backbone.fingerprint == once.backbone.fingerprint
    assert all(map(operator.is_, again.vit.parameters(), once.vit.parameters()))


class BentAdapter(RepAdapter):
    """Says that it folds, as what it inherits from does."""

    def norm(self, layer: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
        return super().norm(layer, x).relu()


class BrokenAdapter(RepAdapter):
    """As `BentAdapter`, but what it makes are no numbers, with which every comparison is false."""

    def norm(self, layer: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
        return super().norm(layer, x).sqrt()


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (BentAdapter, "BentAdapter does not fold, though it says so"),
        (BrokenAdapter, "the model's answer to noise is not finite"),
    ],
)
def test_an_adapter_that_folds_only_by_its_own_account_is_refused(kind: type[RepAdapter], message: str) -> None:
    model = new_model(small_header(small_backbone(), REPADAPTER), small_backbone())
    bent = AdaptedViT(model.backbone, kind(model.backbone.geometry), model.reducer, model.head)
    with pytest.raises(UnsupportedError, match=message):
        fold(bent)
