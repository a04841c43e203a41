"""Saved models of transformers as backbones."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from peft_models import HUGGING_FACE, IMAGES, SIZES, convert, hugging_face_model
from safetensors.torch import load_file, save_file
from timm.models import save_for_hf
from transformers import ViTConfig, ViTForImageClassification

from fpet.backbone import load_backbone
from fpet.cli import main
from fpet.convert.transformers import read_transformers
from fpet.errors import BackboneError, UnsupportedError
from fpet.untrained import preprocessing_of

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


@pytest.mark.parametrize("kind", HUGGING_FACE)
def test_what_reads_weights_of_transformers_is_said_where_they_cannot_be(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base, output = tmp_path / "base", ["--output", str(tmp_path / "backbone.safetensors")]
    hugging_face_model(kind).save_pretrained(base)
    bare = {name.removeprefix(f"{kind}."): value for name, value in load_file(base / "model.safetensors").items()}
    save_file(bare, tmp_path / "bare.safetensors")
    capsys.readouterr()  # what the library says when it saves
    for source in (base, base / "model.safetensors", tmp_path / "bare.safetensors"):
        for named in ([], ["--architecture", "vit_base_patch16_224"]):
            assert main(["import-backbone", str(source), *named, *output]) == 2
            said = capsys.readouterr().err
            assert said.startswith(f"fpet: {source}: th")
            assert "`fpet convert FOLDER --output FILE` makes a backbone of a folder" in said


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
        ({"intermediate_size": 10**400}, "intermediate_size is not finite"),
        ({"layer_norm_eps": 10**400}, "layer_norm_eps is not finite"),
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


@pytest.mark.parametrize("safe", [True, False])
def test_a_model_that_timm_saved_is_told_with_what_reads_it(
    safe: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    vit = timm.create_model("vit_tiny_patch16_224", depth=1, num_classes=0)
    save_for_hf(vit, tmp_path / "timm", safe_serialization=safe)
    assert main(["convert", str(tmp_path / "timm"), "--output", str(tmp_path / "backbone.safetensors")]) == 2
    said = capsys.readouterr().err
    command = re.search(r"timm saved this model; `fpet (.*) --output FILE` makes a backbone file of it\n$", said)
    assert command is not None
    deep = ["--architecture-arguments", "depth=1", "--output", str(tmp_path / "backbone.safetensors")]
    assert main([*command[1].split(), *deep]) == 0
    assert torch.equal(load_backbone(tmp_path / "backbone.safetensors").vit.pos_embed, vit.pos_embed)  # type: ignore[arg-type]


@pytest.mark.parametrize(("width", "hidden"), [(88, 120), (896, 1952), (1408, 480)])
def test_an_mlp_of_any_width_is_made(width: int, hidden: int, tmp_path: Path) -> None:
    """The quotient of these widths times the one is less than the other, in floats."""
    changes = {"hidden_size": width, "intermediate_size": hidden, "num_attention_heads": 8, "num_hidden_layers": 1}
    ViTForImageClassification(ViTConfig(**SIZES | changes)).save_pretrained(tmp_path)
    assert read_transformers(str(tmp_path)).geometry.mlp_dim == hidden


def test_images_that_are_not_normalised_stay_so(tmp_path: Path) -> None:
    hugging_face_model().save_pretrained(tmp_path)
    images = {"do_normalize": False, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(images))
    vit: Any = read_transformers(tmp_path).vit
    assert (tuple(vit.pretrained_cfg["mean"]), tuple(vit.pretrained_cfg["std"])) == ((0.0,) * 3, (1.0,) * 3)


@pytest.mark.parametrize(
    "images",
    [
        {"rescale_factor": 1 / 255, "image_mean": [0.1, 0.2, 0.3], "image_std": [0.4, 0.5, 0.6]},
        {"rescale_factor": 1 / 127.5, "image_mean": [1.0, 0.9, 0.8], "image_std": [1.0, 0.5, 0.25]},
        {"rescale_factor": 0.01, "do_normalize": False},
    ],
)
def test_images_are_rescaled_as_is_said(
    images: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hugging_face_model().save_pretrained(tmp_path / "base")
    (tmp_path / "base" / "preprocessor_config.json").write_text(json.dumps(images))
    assert main(["convert", str(tmp_path / "base"), "--output", str(tmp_path / "vit.safetensors")]) == 0
    preprocessing = preprocessing_of(load_backbone(tmp_path / "vit.safetensors"))
    said = (f"{name} {','.join(f'{one:g}' for one in getattr(preprocessing, name))}" for name in ("mean", "std"))
    assert capsys.readouterr().out.endswith(f"; {'; '.join(said)}\n")
    pixels = torch.randint(256, (1, 3, 4, 4), dtype=torch.uint8)
    shift, width = (
        torch.tensor(images.get(f"image_{name}", [neutral] * 3)).view(3, 1, 1)
        for name, neutral in (("mean", 0.0), ("std", 1.0))
    )
    expected = (pixels * images["rescale_factor"] - shift) / width  # as transformers documents it
    torch.testing.assert_close(preprocessing.normalize(pixels, torch.float32), expected, rtol=1e-5, atol=1e-5)


def test_a_number_for_all_channels_and_null_are_read_as_transformers_writes_them(tmp_path: Path) -> None:
    hugging_face_model().save_pretrained(tmp_path)
    images = {"image_mean": 0.5, "image_std": 0.25, "do_normalize": None, "do_center_crop": None}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(images))
    preprocessing = preprocessing_of(read_transformers(tmp_path))
    assert (preprocessing.mean, preprocessing.std) == ((0.5,) * 3, (0.25,) * 3)


@pytest.mark.parametrize(
    ("images", "told"),
    [
        ({"do_center_crop": True, "size": {"height": 20, "width": 20}, "crop_size": {"height": 16, "width": 16}}, True),
        ({"do_center_crop": True, "size": {"shortest_edge": 16}, "crop_size": {"height": 16, "width": 16}}, True),
        ({"do_center_crop": False, "size": {"height": 20, "width": 20}}, False),
        ({"do_center_crop": True, "size": 16, "crop_size": 16}, False),
        ({}, False),
    ],
)
def test_a_crop_that_a_task_does_not_make_is_told(
    images: dict[str, Any], told: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hugging_face_model().save_pretrained(tmp_path / "base")
    (tmp_path / "base" / "preprocessor_config.json").write_text(json.dumps(images))
    assert main(["convert", str(tmp_path / "base"), "--output", str(tmp_path / "vit.safetensors")]) == 0
    assert ("a task resizes the whole image" in capsys.readouterr().err) == told


@pytest.mark.parametrize("images", [{"do_rescale": False}, {"rescale_offset": True}])
def test_pixels_in_other_values_are_refused(images: dict[str, Any], tmp_path: Path) -> None:
    hugging_face_model().save_pretrained(tmp_path)
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(images))
    with pytest.raises(UnsupportedError, match=f"preprocessor_config.json: {next(iter(images))} = "):
        read_transformers(tmp_path)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        ({"do_rescale": 1}, "do_rescale = 1 is not of type bool"),
        ({"rescale_factor": 0}, "rescale_factor should be above 0"),
        ({"rescale_factor": 0.01}, "image_mean = None should be three numbers, as there is a rescale_factor"),
        ({"rescale_factor": 0.01, "image_mean": [10**400] * 3}, "should be three numbers"),
        ({"do_normalize": "no"}, "do_normalize = 'no' is not of type bool"),
        ({"image_mean": [10**400] * 3}, "is not three finite numbers"),
        ({"image_std": [1e-300] * 3}, "too large or too small for float32"),
    ],
)
def test_a_wrong_description_of_images_is_refused(images: dict[str, Any], message: str, tmp_path: Path) -> None:
    hugging_face_model().save_pretrained(tmp_path)
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(images))
    with pytest.raises(BackboneError, match=message) as refusal:
        read_transformers(tmp_path)
    assert str(tmp_path) in str(refusal.value)


@pytest.mark.parametrize("value", [torch.zeros(23, 24), torch.zeros(24, 23), torch.tensor(1.0)])
def test_unequal_queries_keys_and_values_are_refused(value: torch.Tensor, tmp_path: Path) -> None:
    hugging_face_model().save_pretrained(tmp_path)
    stored = load_file(tmp_path / "model.safetensors")
    name = next(name for name in stored if "layer.1." in name and name.endswith("value.weight"))
    save_file({**stored, name: value}, tmp_path / "model.safetensors")
    with pytest.raises(BackboneError, match="queries, keys and values of block 1: the shapes or types"):
        read_transformers(tmp_path)
