"""Saved models of transformers as backbones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from peft_models import HUGGING_FACE, IMAGES, SIZES, convert, hugging_face_model
from transformers import ViTConfig, ViTForImageClassification

from fpet.backbone import load_backbone
from fpet.cli import main

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("kind", HUGGING_FACE)
def test_a_transformers_backbone_has_the_same_features(kind: str, tmp_path: Path) -> None:
    model = hugging_face_model(kind).eval()
    model.save_pretrained(tmp_path / "base")
    images = {"image_mean": [0.1, 0.2, 0.3], "image_std": [0.4, 0.5, 0.6]}
    (tmp_path / "base" / "preprocessor_config.json").write_text(json.dumps(images))
    convert(tmp_path / "base", tmp_path / "backbone.safetensors")
    vit: Any = load_backbone(tmp_path / "backbone.safetensors").vit
    assert list(vit.pretrained_cfg["mean"]) == [0.1, 0.2, 0.3]
    with torch.inference_mode():
        expected = getattr(model, kind)(IMAGES).last_hidden_state
        torch.testing.assert_close(vit.forward_features(IMAGES), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("epsilon", [1e-12, 1e-6, 1e-3])
def test_the_epsilon_of_the_norms_comes_along(epsilon: float, tmp_path: Path) -> None:
    """Fresh tokens are so small that they feel it, and the file says it: features are the same after saving."""
    torch.manual_seed(0)
    model = ViTForImageClassification(ViTConfig(**SIZES, layer_norm_eps=epsilon)).eval()
    model.save_pretrained(tmp_path / "base")
    convert(tmp_path / "base", tmp_path / "backbone.safetensors")
    vit: Any = load_backbone(tmp_path / "backbone.safetensors").vit
    with torch.inference_mode():
        expected = model.vit(IMAGES).last_hidden_state
        torch.testing.assert_close(vit.forward_features(IMAGES), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "bert"}, "model_type = 'bert'; covered are vit and deit"),
        ({"hidden_act": "relu"}, "hidden_act = 'relu'"),
        ({"hidden_size": "wide"}, "hidden_size = 'wide'"),
        ({"num_hidden_layers": 3}, "lack 'blocks.2."),
        ({"num_hidden_layers": 1}, "which the model does not"),
        ({"num_hidden_layers": 10**12}, "depth = 1000000000000: it should be a whole number"),
        ({"num_attention_heads": 5}, "timm cannot make"),
        ({"layer_norm_eps": 0}, "norm_eps = 0.0: it should be a number above 0 and below 1"),
    ],
)
def test_another_model_of_transformers_is_refused(
    change: dict[str, Any], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hugging_face_model().save_pretrained(tmp_path / "base")
    path = tmp_path / "base" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    assert main(["convert", str(tmp_path / "base"), "--output", str(tmp_path / "backbone.safetensors")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "backbone.safetensors").exists()
