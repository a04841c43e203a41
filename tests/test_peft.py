"""LoRA checkpoints that the peft library made, of timm and transformers models: the same logits as a task, and back."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from peft_models import (
    HUGGING_FACE,
    convert,
    hugging_face_model,
    logits_of,
    logits_of_task,
    save_timm_backbone,
    timm_model,
    tuned,
    wrapped_timm_model,
)
from safetensors.torch import load_file, save_file
from torch import Tensor

from fpet.cli import main
from fpet.task import Task

pytestmark = pytest.mark.usefixtures("one_thread")

TIMM_TARGETS = [["qkv"], ["attn.qkv", "attn.proj", "fc1", "fc2"]]
TRANSFORMERS_TARGETS = [["q_proj", "v_proj"], ["q_proj", "k_proj", "v_proj", "o_proj", "fc1", "fc2"], ["fc1"]]


@pytest.mark.parametrize("rslora", [False, True])
@pytest.mark.parametrize("targets", TIMM_TARGETS, ids=len)
def test_lora_on_a_timm_vit_answers_alike_and_comes_back(targets: list[str], rslora: bool, tmp_path: Path) -> None:
    backbone = save_timm_backbone(timm_model(), tmp_path / "backbone.safetensors")
    model = tuned(timm_model(), "head", targets, use_rslora=rslora)
    model.save_pretrained(tmp_path / "peft")
    task = tmp_path / "task.safetensors"
    convert(tmp_path / "peft", task, "--backbone", str(backbone), "--interpolation", "bilinear")
    expected = logits_of(model)
    torch.testing.assert_close(logits_of_task(task, backbone), expected, rtol=0, atol=1e-5)
    assert (expected - logits_of(timm_model())).abs().max() > 0.1
    header = Task.load(task).header
    assert header.labels == tuple("01234")
    assert header.preprocessing.interpolation == "bilinear"

    convert(task, tmp_path / "back", "--to", "peft", "--backbone", str(backbone))
    before, after = (load_file(tmp_path / name / "adapter_model.safetensors") for name in ("peft", "back"))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    loaded = PeftModel.from_pretrained(timm_model(), tmp_path / "back")
    torch.testing.assert_close(logits_of(loaded), expected, rtol=0, atol=1e-5)


def test_lora_on_a_timm_vit_that_transformers_wraps_answers_alike(tmp_path: Path) -> None:
    """As `from_pretrained("timm/...")` makes it."""
    backbone, task = save_timm_backbone(timm_model(), tmp_path / "backbone.safetensors"), tmp_path / "task.safetensors"
    model = tuned(wrapped_timm_model(), "head", ["qkv", "fc1"])
    model.save_pretrained(tmp_path / "peft")
    assert all("timm_model" in name for name in load_file(tmp_path / "peft" / "adapter_model.safetensors"))
    convert(tmp_path / "peft", task, "--backbone", str(backbone))
    torch.testing.assert_close(logits_of_task(task, backbone), logits_of(model), rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", HUGGING_FACE)
@pytest.mark.parametrize("targets", TRANSFORMERS_TARGETS, ids=len)
def test_lora_on_a_transformers_model_answers_alike_and_comes_back(
    kind: str, targets: list[str], tmp_path: Path
) -> None:
    base, folder, task = tmp_path / "base", tmp_path / "peft", tmp_path / "task.safetensors"
    hugging_face_model(kind).save_pretrained(base)
    model = tuned(hugging_face_model(kind), "classifier", targets)
    model.save_pretrained(folder)
    backbone = tmp_path / "backbone.safetensors"
    convert(base, backbone)
    convert(folder, task, "--backbone", str(backbone))
    expected = logits_of(model)
    torch.testing.assert_close(logits_of_task(task, backbone), expected, rtol=0, atol=1e-5)

    convert(task, tmp_path / "back", "--to", "peft", "--library", "transformers", "--backbone", str(backbone))
    loaded = PeftModel.from_pretrained(hugging_face_model(kind), tmp_path / "back")
    torch.testing.assert_close(logits_of(loaded), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("library", ["timm", "transformers"])
def test_lora_on_all_linear_layers_answers_alike(library: str, tmp_path: Path) -> None:
    """PEFT then names the classifier among the targets, and saves it whole."""
    make, head = (timm_model, "head") if library == "timm" else (hugging_face_model, "classifier")
    backbone, task = tmp_path / "backbone.safetensors", tmp_path / "task.safetensors"
    if library == "timm":
        save_timm_backbone(make(), backbone)
    else:
        make().save_pretrained(tmp_path / "base")
        convert(tmp_path / "base", backbone)
    model = tuned(make(), head, "all-linear")
    model.save_pretrained(tmp_path / "peft")
    assert head in json.loads((tmp_path / "peft" / "adapter_config.json").read_text())["target_modules"]
    convert(tmp_path / "peft", task, "--backbone", str(backbone))
    torch.testing.assert_close(logits_of_task(task, backbone), logits_of(model), rtol=0, atol=1e-5)


@pytest.mark.parametrize("alpha", [-8, 0])
def test_a_scale_that_no_training_may_have_is_kept(alpha: int, made: Path, tmp_path: Path) -> None:
    folder, task = shutil.copytree(made / "peft", tmp_path / "peft"), tmp_path / "task.safetensors"
    rewrite(folder, lora_alpha=alpha)
    convert(folder, task, "--backbone", str(made / "backbone.safetensors"))
    assert Task.load(task).header.adapter.arguments["scale"] == alpha / 4
    expected = logits_of(PeftModel.from_pretrained(timm_model(), folder))
    torch.testing.assert_close(logits_of_task(task, made / "backbone.safetensors"), expected, rtol=0, atol=1e-5)


def test_names_of_transformers_4_are_known(tmp_path: Path) -> None:
    """Checkpoints of that time name the layers as the files of the base models still do."""
    old = {
        ".layers.": ".encoder.layer.",
        "attention.q_proj": "attention.attention.query",
        "attention.o_proj": "attention.output.dense",
        "mlp.fc2": "output.dense",
    }
    hugging_face_model().save_pretrained(tmp_path / "base")
    model = tuned(hugging_face_model(), "classifier", ["q_proj", "o_proj", "fc2"])
    model.save_pretrained(tmp_path / "peft")
    stored = load_file(tmp_path / "peft" / "adapter_model.safetensors")
    for new, name in old.items():
        stored = {key.replace(new, name): value for key, value in stored.items()}
    save_file(stored, tmp_path / "peft" / "adapter_model.safetensors")
    rewrite(tmp_path / "peft", target_modules=["query", "output.dense"])
    convert(tmp_path / "base", tmp_path / "backbone.safetensors")
    convert(tmp_path / "peft", tmp_path / "task.safetensors", "--backbone", str(tmp_path / "backbone.safetensors"))
    logits = logits_of_task(tmp_path / "task.safetensors", tmp_path / "backbone.safetensors")
    torch.testing.assert_close(logits, logits_of(model), rtol=0, atol=1e-5)


def rewrite(folder: Path, **changes: Any) -> None:
    path = folder / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of a timm ViT and its backbone; LoRA of the second block's fc1 would be the only thing missing."""
    folder = tmp_path_factory.mktemp("made")
    save_timm_backbone(timm_model(), folder / "backbone.safetensors")
    tuned(timm_model(), "head", ["qkv", "fc1"]).save_pretrained(folder / "peft")
    return folder


def configured(**changes: Any) -> Callable[[dict[str, Any], dict[str, Tensor]], None]:
    return lambda config, _: config.update(changes)


def without(part: str) -> Callable[[dict[str, Any], dict[str, Tensor]], None]:
    def remove(_: dict[str, Any], stored: dict[str, Tensor]) -> None:
        for name in [name for name in stored if part in name]:
            del stored[name]

    return remove


def renamed(old: str, new: str) -> Callable[[dict[str, Any], dict[str, Tensor]], None]:
    def rename(_: dict[str, Any], stored: dict[str, Tensor]) -> None:
        for name in [name for name in stored if old in name]:
            stored[name.replace(old, new)] = stored.pop(name)

    return rename


def stored_as(name: str, value: Tensor) -> Callable[[dict[str, Any], dict[str, Tensor]], None]:
    return lambda _, stored: stored.update({f"base_model.model.{name}": value})


def halved(_: dict[str, Any], stored: dict[str, Tensor]) -> None:
    name = "base_model.model.blocks.0.attn.qkv.lora_A.weight"
    stored[name] = stored[name][:2].contiguous()


DAMAGES: dict[str, tuple[Callable[[dict[str, Any], dict[str, Tensor]], None], str]] = {
    "another method": (configured(peft_type="LOHA"), "peft_type = 'LOHA' is not covered"),
    "rank pattern": (configured(rank_pattern={"fc1": 2}), "rank_pattern = {'fc1': 2} is not covered"),
    "alpha pattern": (configured(alpha_pattern={"fc1": 2}), "alpha_pattern"),
    "trained biases": (configured(bias="all"), "bias = 'all'"),
    "DoRA": (configured(use_dora=True), "use_dora = True"),
    "transposed": (configured(fan_in_fan_out=True), "fan_in_fan_out"),
    "an initialisation that changes the base": (configured(init_lora_weights="pissa"), "init_lora_weights = 'pissa'"),
    "a feature of the future": (configured(use_magic={"power": 9}), "use_magic"),
    "rank as text": (configured(r="4"), "r = '4' is not of type int"),
    "rank zero": (configured(r=0), "r = 0 is not above 0"),
    "rank beyond memory": (configured(r=10**9), "is float32 [4, 24] instead of float32 [1000000000, 24]"),
    "rank beyond tensors": (configured(r=10**300), "make no model"),
    "rank beyond floats": (configured(r=10**400), "r is not finite"),
    "alpha beyond floats": (configured(lora_alpha=10**400), "lora_alpha is not finite"),
    "no alpha": (lambda config, _: config.pop("lora_alpha"), "'lora_alpha' is missing"),
    "another rank": (configured(r=8), "is float32 [4, 24] instead of float32 [8, 24]"),
    "a target without tensors": (configured(target_modules=["qkv", "banana"]), "target_modules has 'banana'"),
    "another layer": (
        renamed("blocks.0.mlp.fc1", "patch_embed.proj"),
        "'patch_embed.proj.lora_A.weight' is not covered: PEFT adapts every module whose name ends in 'proj', the "
        r"patch embedding's as well; a pattern leaves that out, such as target_modules=r'.*blocks\.\d+\.attn\.proj'",
    ),
    "the head": (
        renamed("blocks.0.mlp.fc1", "head"),
        "'head.lora_A.weight' is not covered: head is no linear layer of a block",
    ),
    "a deeper model": (
        renamed("blocks.1.", "blocks.2."),
        "'blocks.2.attn.qkv.lora_A.weight' is not covered: the backbone has 2 blocks, from 0",
    ),
    "a block left out": (
        without("blocks.1.mlp"),
        "fc1 is adapted in some blocks, but not in block 1; the backbone has 2",
    ),
    "half of a pair": (without("blocks.1.mlp.fc1.lora_A"), "'adapter.blocks.1.layers.fc1.down.weight' is missing"),
    "another tensor": (renamed("head.bias", "norm.bias"), "'norm.bias' is not covered: it is no LoRA"),
    "two heads": (stored_as("classifier.weight", torch.zeros(5, 24)), "is there a second time, under another name"),
    "no head": (without("head"), "there is no classifier"),
    "a head of one number": (stored_as("head.weight", torch.tensor(1.0)), "the classifier's weight has shape []"),
    "classes without columns": (stored_as("head.weight", torch.zeros(10**9, 0)), "has shape [1000000000, 0]"),
    "complex numbers": (stored_as("head.bias", torch.zeros(5, dtype=torch.complex64)), "is complex64"),
    "no update": (without("lora"), "no tensors"),
    "one rank less": (halved, "is float32 [2, 24] instead of float32 [4, 24]"),
}


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_checkpoint_that_is_not_covered_is_refused(
    damage: str, made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change, message = DAMAGES[damage]
    config = json.loads((made / "peft" / "adapter_config.json").read_text())
    stored = load_file(made / "peft" / "adapter_model.safetensors")
    change(config, stored)
    folder = tmp_path / "peft"
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps(config))
    save_file(stored, folder / "adapter_model.safetensors")
    files = ["--backbone", str(made / "backbone.safetensors"), "--output", str(tmp_path / "task.safetensors")]
    assert main(["convert", str(folder), *files]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert message in error
    assert not (tmp_path / "task.safetensors").exists()


def test_pickled_weights_are_refused(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "adapter_config.json").write_bytes((made / "peft" / "adapter_config.json").read_bytes())
    (tmp_path / "adapter_model.bin").write_bytes(b"")
    files = ["--backbone", str(made / "backbone.safetensors"), "--output", str(tmp_path / "task.safetensors")]
    assert main(["convert", str(tmp_path), *files]) == 2
    assert "there is no adapter_model.safetensors" in capsys.readouterr().err


@pytest.mark.parametrize("named", [None, "google/vit-base-patch16-224"])
def test_the_backbone_of_an_adapter_has_to_be_given_and_is_told(
    named: str | None, made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, task = shutil.copytree(made / "peft", tmp_path / "peft"), tmp_path / "task.safetensors"
    rewrite(folder, base_model_name_or_path=named)
    command = ["convert", str(folder), "--output", str(task)]
    assert main(command) == 2
    called = f", which it calls {named!r}" if named else ""
    assert capsys.readouterr().err == f"fpet: {folder}: give the --backbone that this adapter was trained on{called}\n"
    assert not task.exists()
    assert main([*command, "--backbone", str(made / "backbone.safetensors")]) == 0
    backbone = Task.load(task).header.backbone
    assert capsys.readouterr().out.endswith(f", on {backbone.architecture} {backbone.fingerprint[:12]}\n")
