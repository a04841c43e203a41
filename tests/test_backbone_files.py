"""Checkpoints of other makers: equal weights whatever the format, and one clear error for what cannot be used."""

from __future__ import annotations

import argparse
import collections
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import original
import pytest
import timm
import torch
from timm.models import load_checkpoint
from timm.models.vision_transformer import checkpoint_filter_fn
from torch import nn
from torch.nn import functional as F

from fpet.backbone import Backbone, create_backbone, load_backbone, save_backbone
from fpet.errors import BackboneError, UnsupportedError

VIT = "vit_tiny_patch16_224"
SMALL: dict[str, object] = {"img_size": 32, "patch_size": 8, "embed_dim": 24, "depth": 2, "num_heads": 3}


def random_backbone(architecture: str = VIT, **arguments: object) -> Backbone:
    torch.manual_seed(0)
    backbone = create_backbone(architecture, {**SMALL, **arguments})
    state = {name: torch.randn_like(value) for name, value in backbone.vit.state_dict().items()}
    return create_backbone(architecture, backbone.arguments, state)


@pytest.fixture(scope="module")
def backbone() -> Backbone:
    return random_backbone()


@pytest.fixture
def npz(tmp_path: Path, backbone: Backbone) -> Path:
    path = tmp_path / "ViT.npz"
    np.savez(path, **original.google(backbone.vit))
    return path


def stock(**arguments: object) -> Any:
    return timm.create_model(VIT, num_classes=0, **{**SMALL, **arguments})


def test_the_original_npz_has_the_same_weights(npz: Path, backbone: Backbone) -> None:
    assert load_backbone(npz, VIT, SMALL).fingerprint == backbone.fingerprint
    named_otherwise = npz.rename(npz.with_suffix(".bin"))
    assert load_backbone(named_otherwise, VIT, SMALL).fingerprint == backbone.fingerprint


@pytest.mark.parametrize("size", [32, 48, [16, 32]], ids=str)
def test_the_original_npz_loads_as_timm_loads_it(npz: Path, size: object) -> None:
    expected = stock(img_size=size)
    expected.load_pretrained(str(npz))
    loaded = load_backbone(npz, VIT, {**SMALL, "img_size": size})
    for name, value in expected.state_dict().items():
        assert torch.equal(loaded.vit.state_dict()[name], value), name


def test_as_many_patches_in_another_grid_are_resampled_too(npz: Path, backbone: Backbone) -> None:
    loaded: Any = load_backbone(npz, VIT, {**SMALL, "img_size": [16, 64]})
    assert loaded.resampled_from == (4, 4)
    square: Any = backbone.vit
    positions = square.pos_embed[:, 1:].mT.unflatten(-1, (4, 4))
    expected = F.interpolate(positions, (2, 8), mode="bilinear").flatten(2).mT
    torch.testing.assert_close(loaded.vit.pos_embed[:, 1:], expected)


@pytest.mark.parametrize("size", [32, 16, 48, [16, 64], [64, 32]], ids=str)
def test_positions_are_resampled_as_timm_does(tmp_path: Path, backbone: Backbone, size: Any) -> None:
    torch.save(backbone.vit.state_dict(), tmp_path / "vit.pth")
    arguments = {**SMALL, "img_size": size}
    expected = stock(img_size=32)
    load_checkpoint(expected, str(tmp_path / "vit.pth"), filter_fn=checkpoint_filter_fn)
    expected.set_input_size(size if isinstance(size, list) else [size, size])
    loaded = load_backbone(tmp_path / "vit.pth", VIT, arguments)
    assert torch.equal(loaded.vit.pos_embed, expected.pos_embed)
    assert loaded.resampled_from == (None if size == 32 else (4, 4))


def test_a_file_of_ours_knows_its_grid(tmp_path: Path) -> None:
    path = tmp_path / "wide.safetensors"
    wide = random_backbone(img_size=[16, 64])  # as many patches as 32 x 32
    save_backbone(path, wide)
    assert load_backbone(path).fingerprint == wide.fingerprint
    assert load_backbone(path).resampled_from is None
    square = load_backbone(path, arguments={"img_size": 32})
    assert (square.resampled_from, square.geometry.grid) == ((2, 8), (4, 4))
    assert square.arguments == {**wide.arguments, "img_size": 32}
    assert load_backbone(path, arguments={"img_size": [32, 32]}).arguments == square.arguments
    expected = stock(img_size=[16, 64])
    expected.load_state_dict(wide.vit.state_dict())
    expected.set_input_size([32, 32])
    assert torch.equal(square.vit.pos_embed, expected.pos_embed)
    with pytest.raises(BackboneError, match="num_heads = 4: the file says itself"):
        load_backbone(path, arguments={"num_heads": 4})
    with pytest.raises(BackboneError, match="is of vit_tiny_patch16_224, not of vit_small"):
        load_backbone(path, "vit_small_patch16_224")


def test_pooling_may_be_chosen_anew(tmp_path: Path, backbone: Backbone) -> None:
    save_backbone(tmp_path / "vit.safetensors", backbone)
    pooled = load_backbone(tmp_path / "vit.safetensors", arguments={"global_pool": "avg", "fc_norm": False})
    images = torch.randn(2, 3, 32, 32)
    with torch.inference_mode():
        tokens: Any = backbone.vit
        torch.testing.assert_close(pooled.vit(images), tokens.forward_features(images)[:, 1:].mean(1))


def test_normalisation_travels_in_the_file(tmp_path: Path, backbone: Backbone) -> None:
    mean, std = (0.1, 0.2, 0.3), (0.4, 0.5, 0.6)
    torch.save(backbone.vit.state_dict(), tmp_path / "vit.pth")
    loaded: Any = load_backbone(tmp_path / "vit.pth", VIT, SMALL, {"mean": mean, "std": std})
    save_backbone(tmp_path / "vit.safetensors", loaded)
    again: Any = load_backbone(tmp_path / "vit.safetensors")
    assert (tuple(again.vit.pretrained_cfg["mean"]), tuple(again.vit.pretrained_cfg["std"])) == (mean, std)
    for wrong in (
        {"mean": (0.1, 0.2)},
        {"std": (0.0, 1.0, 1.0)},
        {"mean": (torch.nan,) * 3},
        {"mean": (127.5,) * 3},
        {"scale": (1, 1, 1)},
    ):
        with pytest.raises(BackboneError, match=r"mean|std|scale"):
            load_backbone(tmp_path / "vit.pth", VIT, SMALL, wrong)  # type: ignore[arg-type]


LAYOUTS: dict[str, tuple[str, Callable[[Any], dict[str, torch.Tensor]]]] = {
    "distilled DeiT": ("deit_small_distilled_patch16_224", lambda vit: vit.state_dict()),
    "DeiT-III": ("deit3_small_patch16_224", original.deit3),
    "DINOv2": ("vit_small_patch14_reg4_dinov2", original.dinov2),
    "CLIP": ("vit_base_patch32_clip_quickgelu_224", original.openai_clip),
}


@pytest.mark.parametrize("size", [32, 48])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_published_layouts_are_translated(tmp_path: Path, layout: str, size: int) -> None:
    architecture, convert = LAYOUTS[layout]
    expected: Any = random_backbone(architecture)
    torch.save({"model": convert(expected.vit), "epoch": 3}, tmp_path / "weights.pth")
    expected.vit.set_input_size([size, size])
    loaded = load_backbone(tmp_path / "weights.pth", architecture, {**SMALL, "img_size": size})
    for name, value in expected.vit.state_dict().items():
        torch.testing.assert_close(loaded.vit.state_dict()[name], value, rtol=0, atol=1e-6, msg=name)


def nested(state: dict[str, torch.Tensor]) -> dict[str, Any]:
    noise = {name: torch.randn_like(value) for name, value in state.items()}
    return {
        "plain": state,
        "state_dict": {"state_dict": state, "optimizer": {}},
        "averaged": {"state_dict": noise, "state_dict_ema": state, "args": argparse.Namespace(lr=0.1)},
        "parallel": {"model": collections.OrderedDict((f"module.{name}", value) for name, value in state.items())},
    }


@pytest.mark.parametrize("kind", ["plain", "state_dict", "averaged", "parallel"])
@pytest.mark.parametrize("zipped", [True, False])
def test_torch_checkpoints_as_training_scripts_nest_them(
    tmp_path: Path, backbone: Backbone, kind: str, zipped: bool
) -> None:
    content = nested(dict(backbone.vit.state_dict()))[kind]
    torch.save(content, tmp_path / "weights.pth", _use_new_zipfile_serialization=zipped)
    assert load_backbone(tmp_path / "weights.pth", VIT, SMALL).fingerprint == backbone.fingerprint


class Attack:
    """Unpickling it would make a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.folder),)


@pytest.mark.parametrize("write", [torch.save, lambda value, path: path.write_bytes(pickle.dumps(value))])
def test_a_checkpoint_that_would_run_code_is_refused(tmp_path: Path, write: Callable[[Any, Path], None]) -> None:
    write({"model": Attack(tmp_path / "owned")}, tmp_path / "weights.pth")
    with pytest.raises(BackboneError, match="not a torch checkpoint of plain weights"):
        load_backbone(tmp_path / "weights.pth", VIT, SMALL)
    assert not (tmp_path / "owned").exists()


WRONG: dict[str, Any] = {
    "neither safetensors": b"\x00" * 64,
    "it holds a pickled torch.nn.modules.linear.Linear, not tensors; save the model's state_dict": nn.Linear(2, 2),
    "damaged or incomplete": b"PK\x03\x04" + b"\x00" * 64,
    "not a torch checkpoint of plain weights": b"\x80\x02garbage",
    "holds a list": [1, 2],
    "holds a int under 'epoch'": {"epoch": 3},
    "lack": {},
    "no square": {"pos_embed": torch.zeros(1, 9, 24)},
    "patches are \\[8, 8\\]": {"patch_embed.proj.weight": torch.zeros(24, 3, 16, 16)},
    "RADIO": {"radio_model.model.blocks.0.norm1.weight": torch.zeros(24)},
    "of no known layout": {"visual.class_embedding": torch.zeros(24), "visual.proj": torch.zeros(3)},
}


def test_torchs_words_come_in_one_plain_line(tmp_path: Path) -> None:
    for content in (pickle.dumps({"a": b"\x1b[2J"}, protocol=4), b"\x80\x02c\x1b[2Jos\nsystem\n."):
        (tmp_path / "weights.pth").write_bytes(content)
        with pytest.raises(BackboneError) as refusal:
            load_backbone(tmp_path / "weights.pth", VIT, SMALL)
        assert str(refusal.value).isprintable()
        assert "PyTorch 2.6" not in str(refusal.value)


@pytest.mark.parametrize("message", WRONG)
def test_what_is_no_backbone_is_refused_naming_the_file(tmp_path: Path, message: str) -> None:
    path = tmp_path / "wrong.pth"
    content = WRONG[message]
    path.write_bytes(content) if isinstance(content, bytes) else torch.save(content, path)
    with pytest.raises((BackboneError, UnsupportedError), match=message) as refusal:
        load_backbone(path, VIT, SMALL)
    assert str(refusal.value).startswith(f"{path}: ")


QKV = "Transformer/encoderblock_1/MultiHeadDotProductAttention_1"
DAMAGES: dict[str, tuple[dict[str, Any], dict[str, object]]] = {
    f"lack '{QKV}/key/bias'": ({f"{QKV}/key/bias": None}, {}),
    "lack 'norm.bias'": ({"Transformer/encoder_norm/bias": None}, {}),
    "have 'Transformer/encoderblock_2/x'": ({"Transformer/encoderblock_2/x": np.zeros(1)}, {}),
    "lack 'blocks.2.attn.proj.bias'": ({}, {"depth": 3}),
    "have 'blocks.1.attn.proj.bias'": ({}, {"depth": 1}),
    "not of 4 heads": ({}, {"num_heads": 4}),
    "'patch_embed.proj.weight' has shape": ({}, {"patch_size": 16}),
    "'cls' cannot be read": ({"cls": np.array([{}], dtype=object)}, {}),
    "not finite": ({"cls": np.full((1, 1, 24), np.nan, dtype=np.float32)}, {}),
}


@pytest.mark.parametrize("message", DAMAGES)
def test_an_npz_that_does_not_fit_is_refused_by_key(tmp_path: Path, backbone: Backbone, message: str) -> None:
    changes, arguments = DAMAGES[message]
    arrays = {**original.google(backbone.vit), **changes}
    np.savez(tmp_path / "ViT.npz", **{name: value for name, value in arrays.items() if value is not None})
    with pytest.raises(BackboneError, match=message):
        load_backbone(tmp_path / "ViT.npz", VIT, {**SMALL, **arguments})


@pytest.mark.parametrize("damage", [lambda data: data[:-100], lambda data: data[:9000] + b"\xff" * 9 + data[9009:]])
def test_a_damaged_npz_is_refused(npz: Path, damage: Callable[[bytes], bytes]) -> None:
    npz.write_bytes(damage(npz.read_bytes()))
    with pytest.raises(BackboneError, match=r"damaged|cannot be read"):
        load_backbone(npz, VIT, SMALL)
