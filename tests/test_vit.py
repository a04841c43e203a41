"""The one forward pass: timm's, bit for bit, when adapter and reducer do nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from small import perturb
from torch import nn

from fpet.adapters import build_adapter
from fpet.backbone import Backbone, create_backbone
from fpet.block import BlockParts, DropPath, adapted_block
from fpet.errors import BackboneError, UnsupportedError
from fpet.linear import LowBitLinear
from fpet.reducers import build_reducer
from fpet.tokens import Layout, Tokens
from fpet.vit import AdaptedViT, check_parity

COVERED: list[tuple[str, dict[str, object]]] = [
    ("vit_tiny_patch16_224", {}),
    ("vit_base_patch16_224", {}),
    ("deit_tiny_distilled_patch16_224", {}),
    ("deit3_small_patch16_224", {}),
    ("vit_small_patch14_reg4_dinov2", {"img_size": 112}),
    ("vit_base_patch32_clip_224", {}),
    ("vit_tiny_patch16_224", {"qk_norm": True, "scale_attn_norm": True, "scale_mlp_norm": True}),
]
SMALL: dict[str, object] = {"img_size": 64, "patch_size": 8, "embed_dim": 48, "depth": 3, "num_heads": 3}


def random_backbone(architecture: str, arguments: dict[str, object]) -> Backbone:
    """A backbone none of whose parameters is at a neutral value, so that leaving one out shows."""
    torch.manual_seed(0)
    backbone = create_backbone(architecture, arguments)
    perturb(backbone.vit, 0.02)
    return backbone


def identity_model(backbone: Backbone) -> AdaptedViT:
    geometry = backbone.geometry
    adapter = build_adapter("none", geometry, {})
    reducer = build_reducer("none", geometry, Layout.of(geometry), {})
    return AdaptedViT(backbone, adapter, reducer, nn.Identity()).eval()


def small_model(reducer: str = "bdm", adapter: str = "lora", drop_path: float = 0.0) -> AdaptedViT:
    backbone = random_backbone("vit_tiny_patch16_224", SMALL)
    geometry = backbone.geometry
    where = {"block": 1} if reducer == "bdm" else {}
    return AdaptedViT(
        backbone,
        build_adapter(adapter, geometry, {} if adapter == "none" else {"dim": 4}),
        build_reducer(reducer, geometry, Layout.of(geometry), where),
        LowBitLinear(geometry.embed_dim, 5, bias=True),
        drop_path=drop_path,
    ).eval()


@pytest.mark.parametrize(("architecture", "arguments"), COVERED)
def test_forward_equals_timm_bit_for_bit(architecture: str, arguments: dict[str, object]) -> None:
    backbone = random_backbone(architecture, arguments)
    vit: Any = backbone.vit
    model = identity_model(backbone)
    images = torch.randn(2, 3, *vit.patch_embed.img_size)
    with torch.inference_mode():
        tokens = vit.forward_features(images)
        assert torch.equal(model.tokens(images).x, tokens)
        assert torch.equal(model(images), vit.forward_head(tokens, pre_logits=True))
    check_parity(backbone)


def test_parity_check_notices_a_block_that_computes_something_else() -> None:
    backbone = random_backbone("vit_tiny_patch16_224", SMALL)
    vit: Any = backbone.vit
    vit.blocks[1].register_forward_hook(lambda *call: call[-1] * 1.01)
    with pytest.raises(BackboneError, match="differs from timm's"):
        check_parity(backbone)


@pytest.mark.parametrize(
    ("architecture", "arguments", "named"),
    [
        ("swin_tiny_patch4_window7_224", {}, "SwinTransformer"),
        ("vit_tiny_patch16_224", {"global_pool": "map"}, "pools by 'map'"),
        ("vit_tiny_patch16_224", {"block_fn": "no"}, "cannot make"),
        ("vit_medium_patch16_rope_reg1_gap_256", {}, "Eva"),
        ("no_such_model", {}, "no_such_model"),
        ("vit_tiny_patch16_224", {"num_classes": 3}, "num_classes"),
    ],
)
def test_uncovered_backbones_are_refused_by_name(architecture: str, arguments: dict[str, object], named: str) -> None:
    with pytest.raises((UnsupportedError, BackboneError), match=named):
        create_backbone(architecture, arguments)


def test_an_image_is_answered_alone_as_in_a_batch() -> None:
    model = small_model()
    images = torch.randn(5, 3, 64, 64)
    with torch.inference_mode():
        together = model(images)
        for i in range(5):
            torch.testing.assert_close(model(images[i : i + 1])[0], together[i], rtol=1e-4, atol=1e-5)


def test_unreduced_shares_the_modules_and_keeps_all_tokens() -> None:
    model = small_model()
    bare = model.unreduced()
    assert (model.tokens_in, model.tokens_out, bare.tokens_out) == (65, 33, 65)
    assert bare.adapter is model.adapter
    assert bare.head is model.head
    images = torch.randn(2, 3, 64, 64)
    with torch.inference_mode():
        assert model.tokens(images).x.shape[1] == 33
        assert bare.tokens(images).size is None
        assert not torch.equal(model(images), bare(images))


def test_only_adapter_reducer_and_head_learn() -> None:
    model = small_model().train()
    model(torch.randn(2, 3, 64, 64)).square().sum().backward()
    assert all(parameter.grad is None for parameter in model.vit.parameters())
    for name, parameter in model.trainable().named_parameters():
        assert parameter.grad is not None, name
    assert not model.vit.training


def test_drop_path_acts_in_training_only() -> None:
    torch.manual_seed(1)
    model = small_model("none", "none", drop_path=0.9)
    images = torch.randn(8, 3, 64, 64)
    with torch.inference_mode():
        model.train()
        assert not torch.equal(model(images), model(images))
        model.eval()
        assert torch.equal(model(images), model(images))


def test_stochastic_depth_keeps_the_mean() -> None:
    torch.manual_seed(0)
    x = torch.rand(4000, 3, 2)
    y = DropPath(0.25).train()(x)
    kept = y.flatten(1).any(dim=1)  # whole images
    torch.testing.assert_close(y[kept], x[kept] / 0.75)
    assert kept.float().mean() == pytest.approx(0.75, abs=0.03)


def test_stochastic_depth_rises_from_zero() -> None:
    rates = [each.p for each in small_model(drop_path=0.5).drop_path]
    assert rates == pytest.approx([0, 0.25, 0.5])


@pytest.mark.parametrize("rate", [-0.5, 1.0, 1.5, float("nan")])
def test_a_rate_of_stochastic_depth_that_is_none_is_refused(rate: float) -> None:
    with pytest.raises(ValueError, match=rf"drop_path = {rate} should be in \[0, 1\)"):
        small_model(drop_path=rate)


@pytest.mark.parametrize("adapter", ["lora", "adaptformer"])
def test_stochastic_depth_drops_both_branches_but_not_what_stands_beside_them(adapter: str) -> None:
    model = small_model("none", adapter)
    parts = model.backbone.vit.blocks[0], model.adapter.blocks[0], model.reducer.blocks[0]
    adapting = parts[1]
    perturb(adapting, 0.2)
    x = torch.randn(2, 65, 48)
    with torch.inference_mode():
        kept = adapted_block(BlockParts(*parts, DropPath(0.5).eval()), Tokens(x, None), None).x
        dropped = adapted_block(BlockParts(*parts, DropPath(1 - 1e-9).train()), Tokens(x, None), None).x
        beside = adapting.up(adapting.down(x).relu()) if adapter == "adaptformer" else torch.zeros_like(x)
    torch.testing.assert_close(dropped, x + beside)
    assert not torch.allclose(kept, dropped, atol=0.1)


@pytest.mark.parametrize("prefix", [0, 3], ids=["patches", "class token and registers too"])
def test_mean_pooling_weighs_tokens_by_size(prefix: int) -> None:
    arguments = {**SMALL, "global_pool": "avg", "fc_norm": False, "reg_tokens": 2, "pool_include_prefix": prefix > 0}
    backbone = random_backbone("vit_tiny_patch16_224", arguments)
    geometry = backbone.geometry
    reducer = build_reducer("bdm", geometry, Layout.of(geometry), {"block": 1})
    model = AdaptedViT(backbone, build_adapter("none", geometry, {}), reducer, nn.Identity()).eval()
    images = torch.randn(2, 3, 64, 64)
    with torch.inference_mode():
        x, size = model.tokens(images)
        assert size is not None
        x, size = x[:, 3 - prefix :], size[:, 3 - prefix :]
        torch.testing.assert_close(model.features(images), (x * size).sum(1) / size.sum(1))


@pytest.mark.parametrize(
    ("images", "error", "named"),
    [
        (torch.zeros(2, 3, 64, 64, dtype=torch.uint8), TypeError, r"not uint8 \[2, 3, 64, 64\]"),
        (torch.zeros(2, 3, 64, 64, dtype=torch.float64), TypeError, r"not float64 \[2, 3, 64, 64\]"),
        (np.zeros((2, 3, 64, 64), np.float32), TypeError, "not ndarray"),
        (torch.zeros(2, 4, 64, 64), ValueError, r"not float32 \[2, 4, 64, 64\]"),
        (torch.zeros(3, 64, 64), ValueError, r"not float32 \[3, 64, 64\]"),
        (torch.zeros(2, 3, 32, 64), ValueError, r"not float32 \[2, 3, 32, 64\]"),
        (torch.zeros(2, 64, 64, 3), ValueError, r"not float32 \[2, 64, 64, 3\]"),
    ],
)
def test_what_are_no_normalised_images_is_refused(images: Any, error: type[Exception], named: str) -> None:
    with pytest.raises(error, match=rf"normalised float32 \[B, 3, 64, 64\], as .* make them, {named}$"):
        small_model()(images)


def test_under_autocast_images_may_be_of_either_dtype() -> None:
    model = small_model()
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        for dtype in (torch.float32, torch.bfloat16):
            assert model(torch.zeros(1, 3, 64, 64, dtype=dtype)).shape == (1, 5)
        with pytest.raises(TypeError, match="not uint8"):
            model(torch.zeros(1, 3, 64, 64, dtype=torch.uint8))
