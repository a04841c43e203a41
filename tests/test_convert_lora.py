"""LoRA of any layers: folded, and as checkpoints for the peft library."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from peft import PeftModel
from peft_models import convert, logits_of
from small import ARCHITECTURE, ARGUMENTS, small_backbone, small_header
from torch import nn

from fpet.adapters import build_adapter
from fpet.backbone import create_backbone, save_backbone
from fpet.backbone_files.described import fingerprint
from fpet.cli import main
from fpet.embedded import task_path
from fpet.errors import UnsupportedError
from fpet.folding import fold
from fpet.header import Method
from fpet.task import Task, new_model, save_task

pytestmark = pytest.mark.usefixtures("one_thread")


def lora_task(folder: Path, adapter: Method, bits: int = 32) -> Path:
    """A LoRA task with weights that matter, beside its backbone."""
    backbone = small_backbone()
    save_backbone(folder / "backbone.safetensors", backbone)
    header = small_header(backbone, adapter=Method(adapter.kind, {**adapter.arguments, "bits": bits}))
    torch.manual_seed(0)
    model = new_model(header, backbone)
    for parameter in model.trainable().parameters():
        nn.init.normal_(parameter, std=0.2)
    save_task(folder / "task.safetensors", header, model)
    return folder / "task.safetensors"


def to_peft(task: Path, *more: str) -> list[str]:
    files = ["--backbone", str(task.parent / "backbone.safetensors"), "--output", str(task.parent / "peft")]
    return ["convert", str(task), "--to", "peft", *files, *more]


@pytest.mark.parametrize("bits", [1, 32])
def test_queries_and_values_become_one_update_of_timms_fused_layer(bits: int, tmp_path: Path) -> None:
    task = lora_task(tmp_path, Method("lora", {"dim": 4, "scale": 0.3}), bits)
    assert main(to_peft(task, "--library", "timm")) == 0
    stock = timm.create_model(ARCHITECTURE, num_classes=10, **ARGUMENTS)
    stock.load_state_dict({**small_backbone().vit.state_dict(), **stock.get_classifier().state_dict(prefix="head.")})
    loaded = PeftModel.from_pretrained(stock, tmp_path / "peft")
    expected = logits_of(Task.load(task).build(small_backbone()).unreduced())
    torch.testing.assert_close(logits_of(loaded), expected, rtol=0, atol=1e-5)
    assert sorted(path.name for path in (tmp_path / "peft").iterdir()) == [
        "adapter_config.json",
        "adapter_model.safetensors",
    ]


def test_what_peft_has_no_place_for_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(to_peft(lora_task(tmp_path, Method("lora", {"dim": 4})), "--library", "timm")) == 0
    told = capsys.readouterr().out
    assert told.startswith(f"{tmp_path / 'peft'}: adapter_config.json, adapter_model.safetensors; ")
    assert told.endswith("; labels, preprocessing and token reduction have no place in such a folder\n")


def test_a_scale_that_a_file_has_as_a_whole_number_is_written(tmp_path: Path) -> None:
    task = lora_task(tmp_path, Method("lora", {"dim": 4, "scale": 2.0}))
    task.write_bytes(task.read_bytes().replace(b'scale\\": 2.0', b'scale\\": 2  '))  # as another program writes it
    assert type(Task.load(task).header.adapter.arguments["scale"]) is int
    assert main(to_peft(task)) == 0
    assert json.loads((tmp_path / "peft" / "adapter_config.json").read_text())["lora_alpha"] == 2 * 4


def test_a_fused_update_becomes_three(tmp_path: Path) -> None:
    task = lora_task(tmp_path, Method("lora", {"dim": 4, "targets": "qkv+proj"}))
    assert main(to_peft(task, "--library", "transformers")) == 0
    convert(tmp_path / "peft", tmp_path / "again.safetensors", "--backbone", str(tmp_path / "backbone.safetensors"))
    again = Task.load(tmp_path / "again.safetensors")
    assert again.header.adapter.arguments["targets"] == "q+k+v+proj"
    expected = logits_of(Task.load(task).build(small_backbone()).unreduced())
    torch.testing.assert_close(logits_of(again.build(small_backbone())), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("adapter", "more", "message"),
    [
        (Method("adaptformer"), [], "PEFT has LoRA, not adaptformer"),
        (Method("lora", {"targets": "q+v+fc1"}), ["--library", "timm"], "several ranks: attn.qkv 16, mlp.fc1 8"),
    ],
)
def test_a_task_that_peft_cannot_hold_is_refused(
    adapter: Method, more: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = lora_task(tmp_path, adapter)
    assert main(to_peft(task, *more)) == 2
    assert message in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["backbone.safetensors", "task.safetensors"]


def test_the_two_classifiers_of_a_distilled_deit_are_refused_both_ways(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(to_peft(lora_task(tmp_path, Method("lora")))) == 0
    distilled = create_backbone("deit_tiny_distilled_patch16_224", ARGUMENTS)
    backbone, task = tmp_path / "distilled" / "backbone.safetensors", tmp_path / "distilled" / "task.safetensors"
    save_backbone(backbone, distilled)
    header = small_header(distilled, adapter=Method("lora"), reducer=Method("none"))
    save_task(task, header, new_model(header, distilled))
    from_peft = ["convert", str(tmp_path / "peft"), "--backbone", str(backbone), "--output", f"{task}.safetensors"]
    for command in (to_peft(task), from_peft):
        assert main(command) == 2
        assert "averages two classifiers" in capsys.readouterr().err
    assert sorted(path.name for path in task.parent.iterdir()) == ["backbone.safetensors", "task.safetensors"]


def test_what_is_there_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    task = lora_task(tmp_path, Method("lora"))
    (tmp_path / "peft").mkdir()
    assert main(to_peft(task)) == 2
    assert "it is there already" in capsys.readouterr().err
    assert not list((tmp_path / "peft").iterdir())


def test_what_is_of_no_known_kind_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    weights = tmp_path / "task.pt"
    weights.touch()
    for source in (tmp_path, weights):
        assert main(["convert", str(source), "--output", str(tmp_path / "output")]) == 2
        assert "neither a .bin or .safetensors file nor a folder" in capsys.readouterr().err
    assert main(["convert", str(tmp_path / "missing"), "--output", str(tmp_path / "output")]) == 2
    assert "missing: there is no such file or folder" in capsys.readouterr().err
    assert main(["convert", str(task_path("digits")), "--output", str(tmp_path / "output")]) == 2
    assert "give --to published or --to peft" in capsys.readouterr().err


@pytest.mark.parametrize("targets", ["q+k+v", "qkv", "proj+fc1+fc2"])
def test_every_target_folds_and_leaves_the_rest_shared(targets: str) -> None:
    backbone = small_backbone()
    header = small_header(backbone, adapter=Method("lora", {"dim": 4, "targets": targets}))
    torch.manual_seed(0)
    model = new_model(header, backbone).eval()
    for parameter in model.trainable().parameters():
        nn.init.normal_(parameter, std=0.2)
    folded = fold(model)
    torch.testing.assert_close(logits_of(folded), logits_of(model), rtol=1e-4, atol=1e-4)
    ours: Any = backbone.vit.blocks[0]
    theirs: Any = folded.vit.blocks[0]
    assert (theirs.mlp.fc1.weight is ours.mlp.fc1.weight) == ("fc1" not in targets)
    assert fingerprint(backbone.vit) == small_backbone().fingerprint


@pytest.mark.parametrize("targets", ["", "q+x", "q+q", "qkv+v", "q,v"])
def test_wrong_targets_are_refused(targets: str) -> None:
    with pytest.raises(UnsupportedError, match=re.escape(f"targets = {targets!r}")):
        build_adapter("lora", small_backbone().geometry, {"targets": targets})
