"""What the header of a backbone file must say, and that it gets no more time and memory than the weights are worth."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import timm
from small import ARCHITECTURE, ARGUMENTS, PUBLISHED_ODD, small_backbone

from fpet.backbone import create_backbone, load_backbone, save_vit
from fpet.backbone_files.limits import check_depth
from fpet.backbone_files.timm_models import refuse_uncovered, vit_on_meta
from fpet.errors import BackboneError, UnsupportedError

SECONDS = 5.0  # of the processor
HOSTILE: list[tuple[dict[str, object], str]] = [
    ({"depth": 100_000}, "depth = 100000: it should be a whole number from 1 to 128"),
    ({"depth": 129}, "depth = 129: "),
    ({"depth": 0}, "depth = 0: "),
    ({"depth": 2**80}, "depth = "),
    ({"depth": [10**10]}, "depth = "),
    ({"embed_dim": 2**20, "num_heads": 2**10}, r"'blocks.0.attn.proj.bias' has shape \[24\]; .* needs \[1048576\]"),
    ({"embed_dim": 2**62}, "timm cannot make"),
    ({"mlp_ratio": 2.0**20}, "'blocks.0.mlp.fc1.bias' has shape"),
    ({"mlp_ratio": 1e300}, "timm cannot make"),
    ({"reg_tokens": 2**40}, "'pos_embed' has shape|lack 'reg_token'"),
    ({"patch_size": 2**11, "img_size": 2**12}, "'patch_embed.proj.weight' has shape"),
    ({"img_size": 2**20}, "an image of 1048576 x 1048576 pixels has more than 16777216"),
    ({"img_size": [2**12, 2**12 + 2**4], "patch_size": 2**4}, "an image of 4096 x 4112 pixels has more than"),
    ({"img_size": 2**12}, "an image of 1024 x 1024 patches has more than 65536"),
    ({"img_size": 113}, "an image of 113 x 113 pixels is no whole number of patches of 4 x 4"),
    ({"img_size": [16, 18]}, "an image of 16 x 18 pixels is no whole number of patches of 4 x 4"),
    ({"patch_size": [3, 4]}, "an image of 16 x 16 pixels is no whole number of patches of 3 x 4"),
    ({"img_size": "64x96"}, r"img_size = '64x96': give a number, or height\+width as in 224\+448"),
    # No weights depend on the image size then.
    ({"img_size": 2**20, "pos_embed": "none"}, "pixels has more than"),
    ({"img_size": [16, 2**20], "pos_embed": "none"}, "patches has more than"),
]


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ('{"format": 1}', "the header lacks the field 'architecture'"),
        ('{"architecture": "vit_tiny_patch16_224"}', "the header lacks the field 'arguments'"),
        ('{"format": 2, "architecture": "vit_tiny_patch16_224", "arguments": {}}', "the header is not of backbone"),
        ('{"architecture": "vit_tiny_patch16_224", "arguments": [3]}', "the header's arguments is not an object"),
        ('{"architecture": 3, "arguments": {}}', "the header's architecture is not text"),
        ('{"architecture": "hf-hub:timm/vit_tiny_patch16_224", "arguments": {}}', "timm has no model"),
        ('{"architecture": "vit_tiny_patch16_224", "arguments": {}, "more": 1}', "the header has an unknown field"),
        ('{"made_of": "vit_tiny_patch16_224", "format": 2}', "the header is not of backbone format 1"),
        ("[]", "the header is not an object"),
        ("[" * 100_000, "the header is nested too deeply"),
        ("not JSON", "the header is not JSON"),
    ],
)
def test_a_header_that_describes_no_backbone_is_refused(tmp_path: Path, header: str, message: str) -> None:
    path = tmp_path / "backbone.safetensors"
    safetensors.torch.save_file(small_backbone().vit.state_dict(), path, {"fpet": header})
    with pytest.raises(BackboneError, match=f"^{re.escape(str(path))}: {message}"):
        load_backbone(path)


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize(("changes", "message"), HOSTILE, ids=[str(changes) for changes, _ in HOSTILE])
def test_a_header_that_asks_for_more_than_the_file_holds_is_refused(
    tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    path = tmp_path / "hostile.safetensors"
    header = {"architecture": ARCHITECTURE, "arguments": {**ARGUMENTS, **changes}}
    safetensors.torch.save_file(small_backbone().vit.state_dict(), path, {"fpet": json.dumps(header)})
    started = time.thread_time()
    with pytest.raises(BackboneError, match=message) as refusal:
        load_backbone(path)
    assert time.thread_time() - started < SECONDS
    assert str(refusal.value).startswith(f"{path}: ")


def test_what_is_just_within_the_limits_is_not_refused() -> None:
    check_depth({"depth": 128})
    vit_on_meta(ARCHITECTURE, {**ARGUMENTS, "img_size": 2**12, "patch_size": 2**4})  # 2**24 pixels, 2**16 patches


@pytest.mark.parametrize("chosen", [{}, {"img_size": 384}], ids=str)
def test_a_published_image_that_ends_beside_the_last_patch_is_not_refused(chosen: dict[str, object]) -> None:
    small = {"embed_dim": 24, "depth": 2, "num_heads": 3}
    assert create_backbone(PUBLISHED_ODD, {**small, **chosen}).geometry.grid == (27, 27)
    with pytest.raises(BackboneError, match="an image of 384 x 384 pixels is no whole number of patches of 14 x 14"):
        create_backbone("vit_small_patch14_dinov2", {**small, "img_size": 384})


def test_a_file_of_a_backbone_that_is_refused_can_be_had_at_another_size(tmp_path: Path) -> None:
    odd = {**ARGUMENTS, "img_size": 18}
    vit = timm.create_model(ARCHITECTURE, num_classes=0, **odd)
    save_vit(tmp_path / "odd.safetensors", vit, ARCHITECTURE, odd)
    with pytest.raises(BackboneError, match="an image of 18 x 18 pixels is no whole number of patches of 4 x 4"):
        load_backbone(tmp_path / "odd.safetensors")
    assert load_backbone(tmp_path / "odd.safetensors", arguments={"img_size": 20}).geometry.grid == (5, 5)


@pytest.mark.usefixtures("little_memory")
def test_a_large_architecture_takes_no_memory_for_weights_that_are_small() -> None:
    with pytest.raises(BackboneError, match=r"'blocks.0.attn.proj.bias' has shape \[24\]"):
        create_backbone("vit_huge_patch14_224", {}, small_backbone().vit.state_dict())


@pytest.mark.parametrize(
    ("architecture", "arguments", "message"),
    [
        ("vit_tiny_r_s16_p8_224", {}, "has a HybridEmbed; covered is timm's PatchEmbed"),
        ("vit_small_patch16_18x2_224", {}, "has a ParallelThingsBlock; covered is timm's Block"),
        ("vit_pwee_patch16_reg1_gap_256", {}, "has a ParallelScalingBlock; covered is timm's Block"),
        (ARCHITECTURE, {"embed_norm_layer": "layernorm"}, "normalises its patch embeddings"),
        (ARCHITECTURE, {"num_heads": -3}, "with -3 heads is not covered"),
        ("deit_tiny_distilled_patch16_224", {"no_embed_class": True}, "with no_embed_class is not covered"),
    ],
)
def test_parts_that_the_forward_pass_does_not_know_are_refused(
    architecture: str, arguments: dict[str, object], message: str
) -> None:
    with pytest.raises(UnsupportedError, match=message):
        vit_on_meta(architecture, arguments)


def test_what_weights_do_not_hold_is_refused() -> None:
    """Only what a state holds is filled in."""
    vit: Any = small_backbone().vit
    vit.blocks[0].register_buffer("angles", vit.cls_token, persistent=False)
    with pytest.raises(UnsupportedError, match=r"'blocks\.0\.angles'"):
        refuse_uncovered(vit, ARCHITECTURE)
