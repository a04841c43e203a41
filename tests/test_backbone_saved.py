"""What `save_vit` writes is the model that it was given; a description that is not true of it is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import timm
import torch
from timm.models.vision_transformer import VisionTransformer
from torch import nn

from fpet.backbone import create_backbone, load_backbone, save_backbone, save_vit
from fpet.backbone_files.described import fingerprint
from fpet.backbone_files.description import Description
from fpet.errors import BackboneError
from fpet.header import Method
from fpet.task import Task, new_model, save_task
from fpet.untrained import new_header

pytestmark = pytest.mark.usefixtures("one_thread")

VIT = "vit_tiny_patch16_224"
DISTILLED = "deit_tiny_distilled_patch16_224"
SMALL: dict[str, Any] = {"img_size": 32, "patch_size": 8, "embed_dim": 24, "depth": 2, "num_heads": 3}


def stock(architecture: str = VIT, **arguments: Any) -> Any:
    """A model of timm, as its user makes it."""
    torch.manual_seed(0)
    return timm.create_model(architecture, **{**SMALL, "num_classes": 0, **arguments})


def features(vit: Any) -> torch.Tensor:
    images = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        pooled: torch.Tensor = vit.eval().forward_head(vit.forward_features(images), pre_logits=True)
    return pooled


@pytest.mark.parametrize("size", [(16, 32), [16, 32]], ids=str)
def test_a_task_on_a_backbone_of_any_form_of_size_is_saved_and_loaded(tmp_path: Path, size: object) -> None:
    backbone = create_backbone(VIT, {**SMALL, "img_size": size})
    assert backbone.arguments["img_size"] == [16, 32]
    header = new_header("mine", ("a", "b"), backbone, adapter=Method("lora", {"dim": 2}), reducer=Method("none"))
    model = new_model(header, backbone).eval()
    save_task(tmp_path / "task.safetensors", header, model)
    save_vit(tmp_path / "vit.safetensors", backbone.vit, VIT, {**SMALL, "img_size": size})
    images = torch.randn(2, 3, 16, 32)
    for other in (backbone, load_backbone(tmp_path / "vit.safetensors")):
        again = Task.load(tmp_path / "task.safetensors").build(other)
        with torch.no_grad():
            assert torch.equal(again(images), model(images))


def test_a_model_that_is_compiled_is_saved_as_what_it_was_made_of(tmp_path: Path) -> None:
    vit = stock()
    save_vit(tmp_path / "vit.safetensors", torch.compile(vit, backend="eager"), VIT, SMALL)
    assert torch.equal(features(load_backbone(tmp_path / "vit.safetensors").vit), features(vit))


def test_the_name_of_a_model_is_told_from_a_file_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(BackboneError, match=f"no file {VIT}; that is the name .* `--backbone timm:{VIT}`"):
        load_backbone(VIT)
    with pytest.raises(BackboneError, match=rf"{VIT}\.safetensors: cannot be read: No such file"):
        load_backbone(f"{VIT}.safetensors")
    with pytest.raises(BackboneError, match=r"missing\.safetensors: cannot be read: No such file"):
        load_backbone(tmp_path / "missing.safetensors")


def test_a_file_of_ours_is_told_what_it_says_in_the_form_of_timm(tmp_path: Path) -> None:
    save_vit(tmp_path / "vit.safetensors", stock(patch_size=(8, 8)), VIT, {**SMALL, "patch_size": (8, 8)})
    loaded = load_backbone(tmp_path / "vit.safetensors", arguments={"patch_size": (8, 8), "img_size": (16, 64)})
    assert (loaded.arguments["patch_size"], loaded.arguments["img_size"]) == ([8, 8], [16, 64])


@pytest.mark.parametrize("value", [np.int64(32), [np.int64(32)] * 2, float("nan"), nn.GELU], ids=str)
def test_an_argument_that_a_file_cannot_hold_is_refused_by_name(tmp_path: Path, value: object) -> None:
    message = "the argument 'img_size' should be numbers, text or lists, as a JSON file holds them: "
    arguments = {**SMALL, "img_size": value}
    with pytest.raises(BackboneError, match=f"^{message}"):
        create_backbone(VIT, arguments)
    path = tmp_path / "vit.safetensors"
    with pytest.raises(BackboneError, match=message):
        save_vit(path, stock(), VIT, arguments)
    assert not path.exists()
    safetensors.torch.save_file(stock().state_dict(), path)
    with pytest.raises(BackboneError, match=f"^{path}: {message}"):
        load_backbone(path, VIT, arguments)


@pytest.mark.parametrize("architecture", [VIT, DISTILLED])
def test_a_classifier_is_left_out(tmp_path: Path, architecture: str) -> None:
    vit = stock(architecture, num_classes=10)
    save_vit(tmp_path / "vit.safetensors", vit, architecture, SMALL)
    loaded = load_backbone(tmp_path / "vit.safetensors")
    assert not any(name.startswith("head") for name in loaded.vit.state_dict())
    assert torch.equal(features(loaded.vit), features(vit))
    assert create_backbone(architecture, SMALL, vit.state_dict()).fingerprint == loaded.fingerprint
    assert vit.num_classes == 10
    metadata = {"fpet": json.dumps({"architecture": architecture, "arguments": SMALL})}
    safetensors.torch.save_file(vit.state_dict(), tmp_path / "described.safetensors", metadata)
    assert load_backbone(tmp_path / "described.safetensors").fingerprint == loaded.fingerprint


def test_a_model_that_timm_did_not_make_by_name_is_written_with_the_table_of_its_name(tmp_path: Path) -> None:
    torch.manual_seed(0)
    vit = VisionTransformer(num_classes=0, **SMALL)
    save_vit(tmp_path / "vit.safetensors", vit, VIT, SMALL)
    loaded = load_backbone(tmp_path / "vit.safetensors")
    assert torch.equal(features(loaded.vit), features(vit))
    assert tuple(loaded.vit.pretrained_cfg["mean"]) == tuple(stock().pretrained_cfg["mean"])


def test_a_model_as_timm_makes_it_needs_no_arguments_and_a_loaded_backbone_none_at_all(tmp_path: Path) -> None:
    first, second = tmp_path / "first.safetensors", tmp_path / "second.safetensors"
    save_vit(first, timm.create_model(VIT, num_classes=0), VIT)
    loaded = load_backbone(first)
    assert loaded.arguments == {}
    save_backbone(second, loaded)
    assert second.read_bytes() == first.read_bytes()
    assert create_backbone(VIT, state=loaded.vit.state_dict()).fingerprint == loaded.fingerprint


WITHOUT_SIZE = {name: value for name, value in SMALL.items() if name != "img_size"}
MISFITS: list[tuple[str, dict[str, Any], str]] = [
    ("vit_small_patch16_224", {}, r"'blocks.0.attn.proj.bias' has shape \[24\]; vit_small_patch16_224 needs \[384\]"),
    (VIT, WITHOUT_SIZE, r"'pos_embed' has shape \[1, 17, 24\]; vit_tiny_patch16_224 needs \[1, 785, 24\]"),
    (VIT, {**SMALL, "depth": 1}, "weights for vit_tiny_patch16_224 have 'blocks.1.attn.proj.bias'"),
    (DISTILLED, SMALL, "weights for deit_tiny_distilled_patch16_224 lack 'dist_token'"),
    ("nothing", SMALL, "timm has no model 'nothing'$"),
    ("vit_smal_patch16_224", {}, "timm has no model 'vit_smal_patch16_224'; it has vit_small_patch16_224, "),
]


@pytest.mark.parametrize(("architecture", "arguments", "message"), MISFITS)
def test_weights_of_another_architecture_or_size_are_not_written(
    tmp_path: Path, architecture: str, arguments: dict[str, Any], message: str
) -> None:
    path = tmp_path / "vit.safetensors"
    with pytest.raises(BackboneError, match=message) as refusal:
        save_vit(path, stock(), architecture, arguments)
    assert str(refusal.value).startswith(f"{path}: ")
    assert not path.exists()


OTHERS: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"global_pool": "avg", "fc_norm": False}, {}, "global_pool is 'avg' in the model, 'token' as described"),
    ({"global_pool": ""}, {}, "global_pool is '' in the model, 'token' as described"),
    ({}, {"norm_eps": 1e-5}, "blocks.0.norm1.eps is 1e-06 in the model, 1e-05 as described"),
    ({"num_heads": 4}, {}, "blocks.0.attn.num_heads is 4 in the model, 3 as described"),
    ({"act_layer": "relu"}, {}, "the same weights compute something else"),
    ({"pos_embed": "none", "img_size": 64}, {"pos_embed": "none"}, r"this one fails at an image of \[1, 3, 32, 32\]"),
]


@pytest.mark.parametrize(("made", "said", "message"), OTHERS)
def test_the_same_weights_in_another_function_are_not_written(
    tmp_path: Path, made: dict[str, Any], said: dict[str, Any], message: str
) -> None:
    path, vit = tmp_path / "vit.safetensors", stock(**made)
    with pytest.raises(BackboneError, match=f"^{path}: the arguments describe another model: {message}"):
        save_vit(path, vit, VIT, {**SMALL, **said})
    assert not path.exists()
    assert vit.training  # as timm makes it


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_a_model_in_training_is_written_and_left_as_it_is(tmp_path: Path, dtype: torch.dtype) -> None:
    vit = stock(num_classes=10, drop_path_rate=0.5, proj_drop_rate=0.5, patch_drop_rate=0.5).to(dtype)
    vit.blocks[0].eval()
    modes, before = [module.training for module in vit.modules()], fingerprint(vit)
    with torch.device("meta"):  # of new tensors; what is compared has values
        save_vit(tmp_path / "vit.safetensors", vit, VIT, SMALL)
    assert [module.training for module in vit.modules()] == modes
    assert {parameter.dtype for parameter in vit.parameters()} == {dtype}
    assert all(parameter.requires_grad for parameter in vit.parameters())
    assert fingerprint(vit) == before
    assert torch.equal(features(load_backbone(tmp_path / "vit.safetensors").vit), features(vit.float()))


def test_weights_that_are_not_finite_are_not_written(tmp_path: Path) -> None:
    vit = stock()
    nn.init.constant_(vit.norm.bias, torch.nan)
    with pytest.raises(BackboneError, match=r"vit.safetensors: 'norm.bias' has values that are not finite"):
        save_vit(tmp_path / "vit.safetensors", vit, VIT, SMALL)


def test_an_argument_that_the_file_leaves_out_is_not_chosen_anew() -> None:
    """It is timm's own default then, and the weights are as much bound to it."""
    with pytest.raises(BackboneError, match="num_heads = 6: the file says itself how its weights are used"):
        Description("vit_tiny_patch16_224", {}).adjusted(None, {"num_heads": 6}, {})


@pytest.mark.parametrize(
    ("provenance", "message"),
    [
        ({"accuracy": float("nan")}, "provenance.accuracy is not finite"),
        ({"source": Path("x")}, "provenance.source is of type PosixPath, which JSON does not hold"),
        ({"by": "\ud800"}, "provenance.by"),
    ],
    ids=str,
)
def test_a_provenance_that_is_no_json_is_refused(tmp_path: Path, provenance: dict[str, Any], message: str) -> None:
    with pytest.raises(BackboneError, match=f"^{tmp_path}/vit.safetensors: {message}"):
        save_vit(tmp_path / "vit.safetensors", stock(), VIT, SMALL, provenance=provenance)
    assert list(tmp_path.iterdir()) == []
