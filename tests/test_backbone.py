"""Backbone files: what is loaded is what was saved, and what does not fit is refused naming file and key."""

from __future__ import annotations

from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import Tensor

from fpet.backbone import Backbone, create_backbone, load_backbone, save_backbone
from fpet.errors import BackboneError

ARCHITECTURE = "vit_tiny_patch16_224"
SMALL: dict[str, object] = {"img_size": [32, 16], "patch_size": 8, "embed_dim": 24, "depth": 2, "num_heads": 3}


@pytest.fixture(scope="module")
def backbone() -> Backbone:
    torch.manual_seed(0)
    return create_backbone(ARCHITECTURE, SMALL)


@pytest.fixture
def path(tmp_path: Path, backbone: Backbone) -> Path:
    path = tmp_path / "backbone.safetensors"
    save_backbone(path, backbone, provenance={"seed": 0})
    return path


def test_a_saved_backbone_describes_itself(path: Path, backbone: Backbone) -> None:
    loaded = load_backbone(path)
    assert (loaded.architecture, loaded.arguments) == (ARCHITECTURE, SMALL)
    assert loaded.fingerprint == backbone.fingerprint
    assert loaded.geometry == backbone.geometry
    assert loaded.geometry.grid == (4, 2)


def test_a_loaded_backbone_is_frozen(path: Path) -> None:
    vit = load_backbone(path).vit
    assert not vit.training
    assert not any(parameter.requires_grad for parameter in vit.parameters())


def test_a_plain_timm_checkpoint_loads_by_name_without_its_classifier(tmp_path: Path, backbone: Backbone) -> None:
    state = {**backbone.vit.state_dict(), "head.weight": torch.zeros(5, 24), "head.bias": torch.zeros(5)}
    safetensors.torch.save_file(state, tmp_path / "plain.safetensors")
    assert load_backbone(tmp_path / "plain.safetensors", ARCHITECTURE, SMALL).fingerprint == backbone.fingerprint
    with pytest.raises(BackboneError, match="name the timm model"):
        load_backbone(tmp_path / "plain.safetensors")


def test_a_type_that_is_none_of_torchs_is_refused(backbone: Backbone) -> None:
    with pytest.raises(TypeError, match=r"dtype is one of torch's, such as torch.bfloat16, not 'bfloat16'"):
        backbone.move("cpu", "bfloat16")  # type: ignore[arg-type]


def test_the_fingerprint_follows_the_weights(backbone: Backbone) -> None:
    state = dict(backbone.vit.state_dict())
    state["norm.bias"] = state["norm.bias"] + 1e-6
    assert create_backbone(ARCHITECTURE, SMALL, state).fingerprint != backbone.fingerprint


DAMAGES: dict[str, dict[str, Tensor | None]] = {
    "lack 'norm.bias'": {"norm.bias": None},
    "have 'extra'": {"extra": torch.zeros(1)},
    "'norm.bias' has shape": {"norm.bias": torch.zeros(7)},
    "'norm.bias' is float8_e4m3fn": {"norm.bias": torch.zeros(24).to(torch.float8_e4m3fn)},
    "'norm.bias' is int32": {"norm.bias": torch.zeros(24, dtype=torch.int32)},
    "'norm.bias' has values that are not finite": {"norm.bias": torch.full((24,), torch.nan)},
}


@pytest.mark.parametrize("message", DAMAGES)
def test_weights_that_do_not_fit_are_refused_by_key(tmp_path: Path, backbone: Backbone, message: str) -> None:
    state = {**backbone.vit.state_dict(), **DAMAGES[message]}
    path = tmp_path / "damaged.safetensors"
    safetensors.torch.save_file({key: value for key, value in state.items() if value is not None}, path)
    with pytest.raises(BackboneError, match=message) as refusal:
        load_backbone(path, ARCHITECTURE, SMALL)
    assert str(path) in str(refusal.value)


def test_a_file_that_is_no_backbone_is_refused(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(BackboneError, match="not a complete safetensors file"):
        load_backbone(path)
    with pytest.raises(BackboneError, match="this is a folder, not a file"):
        load_backbone(path.parent)
