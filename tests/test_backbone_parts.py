"""Checkpoints in which the backbone is a part of what was trained, and lies behind a prefix."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import original
import pytest
import safetensors.torch
import torch
from small import ARCHITECTURE, ARGUMENTS, small_backbone
from torch import Tensor

from fpet.backbone import create_backbone, load_backbone
from fpet.errors import BackboneError

pytestmark = pytest.mark.usefixtures("one_thread")

REGISTERS = "vit_small_patch14_reg4_dinov2"
State = dict[str, Tensor]


def weights() -> State:
    return small_backbone().vit.state_dict()


def behind(prefix: str, state: State) -> State:
    return {f"{prefix}{name}": value for name, value in state.items()}


def noise() -> State:
    """Weights that are not to be taken."""
    return {name: value + 1 for name, value in weights().items()}


def head() -> State:
    """A projection head beside the backbone; its tensors have names and shapes that also mean something elsewhere."""
    names = ("head.mlp.0.weight", "dino_head.last_layer.weight", "proj.weight", "pos_embed")
    return {name: torch.zeros(2, 2, 5, 5) for name in names}


NESTED: dict[str, Any] = {
    "Lightning": lambda: {"state_dict": behind("model.", weights()) | head(), "epoch": 3, "hyper_parameters": {"a": 1}},
    "Lightning, with a classifier": lambda: {
        "state_dict": behind("model.", {**weights(), "head.bias": torch.zeros(5)})
    },
    "Lightning, compiled": lambda: {"state_dict": behind("model._orig_mod.", weights())},
    "DINO": lambda: {
        "student": behind("module.backbone.", noise()) | behind("module.", head()),
        "teacher": behind("backbone.", weights()) | head(),
        "epoch": 3,
    },
    "DINO, a student alone": lambda: {"student": behind("module.backbone.", weights()) | behind("module.", head())},
    "teacher and student in one": lambda: {
        "state_dict": behind("student.backbone.", noise()) | behind("teacher.backbone.", weights()) | head()
    },
    "an encoder": lambda: behind("encoder.", weights()) | {"decoder_blocks.0.norm1.bias": torch.zeros(3)},
    "parallel": lambda: behind("module.encoder.vit.", weights()),
    "second of a sequence": lambda: behind("1.", weights()) | {"0.mean": torch.zeros(3)},
}


@pytest.mark.parametrize("kind", NESTED)
def test_a_backbone_behind_a_prefix_is_found(tmp_path: Path, kind: str) -> None:
    torch.save(NESTED[kind](), tmp_path / "weights.pth")
    loaded = load_backbone(tmp_path / "weights.pth", ARCHITECTURE, ARGUMENTS)
    assert loaded.fingerprint == small_backbone().fingerprint


def test_a_backbone_behind_a_prefix_in_safetensors_is_found(tmp_path: Path) -> None:
    safetensors.torch.save_file(behind("backbone.", weights()) | head(), tmp_path / "weights.safetensors")
    loaded = load_backbone(tmp_path / "weights.safetensors", ARCHITECTURE, ARGUMENTS)
    assert loaded.fingerprint == small_backbone().fingerprint


def test_dinov2_behind_a_prefix_is_translated(tmp_path: Path) -> None:
    backbone = create_backbone(REGISTERS, {**ARGUMENTS, "init_values": 0.5})
    torch.save({"teacher": behind("backbone.", original.dinov2(backbone.vit)) | head()}, tmp_path / "weights.pth")
    loaded = load_backbone(tmp_path / "weights.pth", REGISTERS, backbone.arguments)
    for name, value in backbone.vit.state_dict().items():
        torch.testing.assert_close(loaded.vit.state_dict()[name], value, rtol=0, atol=1e-6, msg=name)


def test_blocks_in_several_places_are_refused_naming_them(tmp_path: Path) -> None:
    torch.save(behind("base.", weights()) | behind("momentum.", noise()), tmp_path / "weights.pth")
    with pytest.raises(BackboneError, match=r"weights.pth: the file has blocks behind each of 'base\.', 'momentum\.':"):
        load_backbone(tmp_path / "weights.pth", ARCHITECTURE, ARGUMENTS)


def test_what_a_part_lacks_is_named_as_timm_names_it(tmp_path: Path) -> None:
    state = weights()
    del state["norm.bias"]
    torch.save(behind("backbone.", state), tmp_path / "weights.pth")
    with pytest.raises(BackboneError, match=r"weights for vit_tiny_patch16_224 lack 'norm\.bias'"):
        load_backbone(tmp_path / "weights.pth", ARCHITECTURE, ARGUMENTS)


@pytest.mark.parametrize(
    ("architecture", "suggestion"),
    [("vit_small_patch14_dinov2", ", such as vit_small_patch14_reg4_dinov2"), (ARCHITECTURE, "")],
)
@pytest.mark.parametrize("authors", [True, False])
def test_registers_that_the_architecture_does_not_have_are_named(
    tmp_path: Path, architecture: str, suggestion: str, authors: bool
) -> None:
    vit: Any = create_backbone(REGISTERS, {**ARGUMENTS, "init_values": 0.5}).vit
    torch.save(original.dinov2(vit) if authors else vit.state_dict(), tmp_path / "weights.pth")
    with pytest.raises(BackboneError) as refusal:
        load_backbone(tmp_path / "weights.pth", architecture, ARGUMENTS)
    assert str(refusal.value) == (
        f"{tmp_path / 'weights.pth'}: the weights have 4 register tokens, and {architecture} has none: name an "
        f"architecture with '_reg4_' in its name{suggestion}"
    )


def test_blocks_in_stages_are_one_model_that_is_not_covered(tmp_path: Path) -> None:
    stages = {f"layers.{stage}.{name}": value for stage in range(2) for name, value in weights().items()}
    safetensors.torch.save_file(stages, tmp_path / "staged.safetensors")
    with pytest.raises(BackboneError, match="lack 'blocks"):
        load_backbone(tmp_path / "staged.safetensors", ARCHITECTURE, ARGUMENTS)
