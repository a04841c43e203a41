"""A folded task is a plain timm checkpoint."""

from __future__ import annotations

import dataclasses
import functools
import json
from pathlib import Path

import pytest
import timm
import torch
from small import ARCHITECTURE, ARGUMENTS, small_backbone, small_header

from fpet.backbone import Backbone, create_backbone, save_backbone
from fpet.cli import main
from fpet.fold import fold, timm_state
from fpet.header import HeadSpec, Method
from fpet.linear import LowBitLinear
from fpet.task import Task, new_model, save_task

REPADAPTER = Method("repadapter", {"dim": 4})
IMAGES = torch.randn((2, 3, 16, 16), generator=torch.Generator().manual_seed(0))


def make_task(folder: Path, backbone: Backbone, head_bits: int = 32) -> Path:
    """A RepAdapter task with weights that matter, beside its backbone."""
    save_backbone(folder / "backbone.safetensors", backbone.vit, ARCHITECTURE, backbone.arguments, {})
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


def test_an_adapter_that_does_not_fold_writes_nothing(task: Path, capsys: pytest.CaptureFixture[str]) -> None:
    backbone = small_backbone()
    header = small_header(backbone)
    save_task(task, header, new_model(header, backbone))
    assert main(command(task)) == 2
    assert "AdaptFormer does not fold" in capsys.readouterr().err
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


def test_methods_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["methods"]) == 0
    table = capsys.readouterr().out
    assert "block,dim=32,bits=1,dropout=0.1,refine=True,stop_gradient=True" in table
    assert main(["methods", "--json"]) == 0
    assert {row["kind"] for row in json.loads(capsys.readouterr().out)} >= {"lora", "tome"}
