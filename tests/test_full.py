"""Full tuning is the backbone with other weights, and costs no copy of it."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import timm
import torch
from small import ARCHITECTURE, ARGUMENTS, perturb, small_header
from torch import nn

from fpet.adapters.full import Full, FullBlock
from fpet.backbone import Backbone, create_backbone
from fpet.backbone_files.described import fingerprint
from fpet.errors import UnsupportedError
from fpet.folding import fold
from fpet.header import Method
from fpet.task import new_model
from fpet.timm_checkpoint import timm_state
from fpet.vit import AdaptedViT

BACKBONES: list[tuple[str, dict[str, object]]] = [
    (ARCHITECTURE, {}),
    (ARCHITECTURE, {"class_token": False, "global_pool": "avg", "fc_norm": False}),
    (ARCHITECTURE, {"reg_tokens": 4, "no_embed_class": True, "init_values": 0.1}),
    (ARCHITECTURE, {"pre_norm": True, "qkv_bias": False, "img_size": (16, 24)}),
    ("deit_tiny_distilled_patch16_224", {}),
]


def backbone_of(architecture: str, arguments: dict[str, object]) -> Backbone:
    torch.manual_seed(0)
    backbone = create_backbone(architecture, {**ARGUMENTS, **arguments})
    perturb(backbone.vit, 0.05)
    return create_backbone(architecture, backbone.arguments, backbone.vit.state_dict())


def images_for(backbone: Backbone) -> torch.Tensor:
    vit: Any = backbone.vit
    return torch.randn((2, 3, *vit.patch_embed.img_size), generator=torch.Generator().manual_seed(2))


def full_model(backbone: Backbone) -> AdaptedViT:
    torch.manual_seed(1)
    return new_model(small_header(backbone, Method("full"), Method("none")), backbone).eval()


def tuned(backbone: Backbone) -> AdaptedViT:
    model = full_model(backbone)
    with torch.no_grad():
        for parameter in model.adapter.parameters():
            parameter.normal_(std=0.1)
    return model


def test_it_starts_as_the_backbone() -> None:
    backbone = backbone_of(ARCHITECTURE, {})
    bare = new_model(small_header(backbone, Method("none"), Method("none")), backbone).eval()
    images = images_for(backbone)
    with torch.inference_mode():
        torch.testing.assert_close(full_model(backbone).features(images), bare.features(images))


def test_it_trains_on_a_rounded_backbone_under_autocast() -> None:
    backbone = backbone_of(ARCHITECTURE, {})
    expected = full_model(backbone).features(images_for(backbone))
    backbone.move("cpu", torch.bfloat16)
    model = new_model(small_header(backbone, Method("full"), Method("none")), backbone).train()
    with torch.autocast("cpu", torch.bfloat16):
        found = model.features(images_for(backbone).bfloat16())
    found.float().square().sum().backward()
    torch.testing.assert_close(found.float(), expected, atol=0.1, rtol=0.1)
    assert all(parameter.grad is not None for parameter in model.adapter.parameters())


def test_it_is_timm_with_the_differences_added_to_its_weights() -> None:
    """Every tensor of the backbone moves by a random difference; the adapter is given the same."""
    backbone = backbone_of(ARCHITECTURE, {})
    stock: Any = copy.deepcopy(backbone.vit)
    model = full_model(backbone)
    adapter = model.adapter
    assert isinstance(adapter, Full)
    torch.manual_seed(3)
    before: Any = backbone.vit
    with torch.no_grad():
        perturb(stock, 0.1)

        def norm(change: nn.Module, old: nn.LayerNorm, new: nn.LayerNorm) -> None:
            change.scale.copy_(new.weight / old.weight - 1)
            change.shift.copy_(new.bias - old.bias * new.weight / old.weight)

        for block, old, new in zip(adapter.blocks, before.blocks, stock.blocks, strict=True):
            assert isinstance(block, FullBlock)
            norm(block.norm1, old.norm1, new.norm1)
            norm(block.norm2, old.norm2, new.norm2)
            for change, first, second in (
                (block.qkv_change, old.attn.qkv, new.attn.qkv),
                (block.proj_change, old.attn.proj, new.attn.proj),
                (block.fc1_change, old.mlp.fc1, new.mlp.fc1),
                (block.fc2_change, old.mlp.fc2, new.mlp.fc2),
            ):
                change.weight.copy_(second.weight - first.weight)
                change.bias.copy_(second.bias - first.bias)
        norm(adapter.norm_change, before.norm, stock.norm)
        adapter.patch_weight.copy_((stock.patch_embed.proj.weight - before.patch_embed.proj.weight).flatten(1))
        adapter.patch_bias.copy_(stock.patch_embed.proj.bias - before.patch_embed.proj.bias)
        adapter.positions.copy_((stock.pos_embed - before.pos_embed)[0])
        adapter.positions[0] += (stock.cls_token - before.cls_token)[0, 0]
    images = images_for(backbone)
    with torch.inference_mode():
        torch.testing.assert_close(model.tokens(images).x, stock.forward_features(images), rtol=1e-4, atol=1e-4)
        assert not torch.allclose(before.forward_features(images), stock.forward_features(images), atol=0.1)


@pytest.mark.parametrize(("architecture", "arguments"), BACKBONES)
def test_it_folds_into_any_backbone_that_the_forward_covers(architecture: str, arguments: dict[str, object]) -> None:
    backbone = backbone_of(architecture, arguments)
    model = tuned(backbone)
    before = fingerprint(backbone.vit)
    folded = fold(model)
    images = images_for(backbone)
    with torch.inference_mode():
        torch.testing.assert_close(folded(images), model(images), rtol=1e-4, atol=1e-4)
    assert not list(folded.adapter.parameters())
    assert fingerprint(backbone.vit) == before
    assert folded.backbone.fingerprint == fingerprint(folded.vit) != before


def test_a_backbone_without_positions_does_not_fold() -> None:
    backbone = backbone_of(ARCHITECTURE, {"pos_embed": "none"})
    with pytest.raises(UnsupportedError, match="no position embeddings"):
        fold(full_model(backbone))


def test_stock_timm_loads_the_folded_model() -> None:
    model = tuned(backbone_of(ARCHITECTURE, {}))
    stock = timm.create_model(ARCHITECTURE, num_classes=10, **ARGUMENTS).eval()
    stock.load_state_dict(timm_state(fold(model)))
    images = images_for(model.backbone)
    with torch.inference_mode():
        torch.testing.assert_close(stock(images), model(images), rtol=1e-4, atol=1e-4)


def test_images_of_a_batch_may_have_weights_of_their_own() -> None:
    backbone = backbone_of(ARCHITECTURE, {})
    first, second, both = tuned(backbone), tuned(backbone), tuned(backbone)
    with torch.no_grad():
        for parameter in second.adapter.parameters():
            parameter.mul_(-1)
    for name in [name for name, _ in both.adapter.named_parameters()]:
        owner, _, attribute = name.rpartition(".")
        pair = torch.stack([first.adapter.get_parameter(name), second.adapter.get_parameter(name)])
        setattr(both.adapter.get_submodule(owner), attribute, nn.Parameter(pair))
    images = images_for(backbone)
    with torch.inference_mode():
        mixed = both.features(images)
        torch.testing.assert_close(mixed[:1], first.features(images[:1]), rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(mixed[1:], second.features(images[1:]), rtol=1e-4, atol=1e-4)
