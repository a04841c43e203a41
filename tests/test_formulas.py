"""Adapters against their formulas, written out a second time on the layers of stock timm."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from pairs import IMAGES, model_of, new_backbone
from torch import Tensor, nn

from fpet.adapters import build_adapter
from fpet.backbone import Backbone, create_backbone
from fpet.errors import UnsupportedError
from fpet.reducers import build_reducer
from fpet.tokens import Layout
from fpet.vit import AdaptedViT

SCALE = 0.5


@pytest.fixture(scope="module")
def backbone() -> Backbone:
    return new_backbone()


def scaled(backbone: Backbone, adapter: str) -> AdaptedViT:
    model = model_of(backbone, adapter, "none")
    for block in model.adapter.blocks:
        block.scale = SCALE
    return model


def assert_alike(model: AdaptedViT, stock: Any) -> None:
    with torch.inference_mode():
        tokens = model.tokens(IMAGES).x
        torch.testing.assert_close(tokens, stock.forward_features(IMAGES), rtol=1e-4, atol=1e-4)
        assert not torch.allclose(tokens, model.backbone.vit.forward_features(IMAGES), atol=0.1)


def cores(adapter: Any, index: int) -> list[Tensor]:
    """What a block's row vectors U h are multiplied by: for q, k, v and proj; for each slice of fc1; then of fc2."""
    block = adapter.blocks[index]
    if hasattr(block, "s_q"):
        rank = block.s_q.shape[0]
        own = [block.s_q, block.s_k, block.s_v, block.s_o, *block.s_1.split(rank), *block.s_2.split(rank, dim=1)]
        return [core.T for core in own]
    c, p = block.core.c, block.core.p
    slots = len(p.T) // len(adapter.blocks)
    mixed = [sum(c[:, :, j] * p[j, slot] for j in range(len(p))) for slot in range(index * slots, (index + 1) * slots)]
    ratio = (slots - 4) // 2
    rank = len(p)
    # The published code flattens [r, r, ratio] to [r, r * ratio]; down it multiplies by the transpose.
    up, down = (torch.stack(mixed[4 + i * ratio :][:ratio], dim=-1).reshape(rank, -1) for i in (0, 1))
    return [*mixed[:4], *up.split(rank, dim=1), *(part.T for part in down.split(rank, dim=1))]


@pytest.mark.parametrize("adapter", ["fact-tt", "fact-tk"])
def test_fact_is_timm_with_the_updates_added_to_its_weights(backbone: Backbone, adapter: str) -> None:
    model = scaled(backbone, adapter)
    stock: Any = copy.deepcopy(backbone.vit)
    with torch.no_grad():
        for index, block in enumerate(stock.blocks):
            factors: Any = model.adapter.blocks[index].factors
            updates = [SCALE * factors.v @ core.T @ factors.u for core in cores(model.adapter, index)]
            ratio = (len(updates) - 4) // 2
            block.attn.qkv.weight += torch.cat(updates[:3])
            block.attn.proj.weight += updates[3]
            block.mlp.fc1.weight += torch.cat(updates[4 : 4 + ratio])
            block.mlp.fc2.weight += torch.cat(updates[4 + ratio :], dim=1)
    assert_alike(model, stock)


def test_an_mlp_that_slices_do_not_fill_is_refused() -> None:
    geometry = create_backbone("vit_tiny_patch16_224", {"embed_dim": 24, "depth": 1, "mlp_ratio": 2.5}).geometry
    for adapter in ("fact-tt", "fact-tk"):
        with pytest.raises(UnsupportedError, match="60 channels into slices of 24"):
            build_adapter(adapter, geometry, {})


@pytest.mark.parametrize("adapter", ["ssf", "bitfit"])
def test_maps_per_channel_are_those_of_the_layers_before_them(backbone: Backbone, adapter: str) -> None:
    model = model_of(backbone, adapter, "none")
    stock: Any = copy.deepcopy(backbone.vit)

    @torch.no_grad()
    def mapped(layer: Any, change: Any) -> None:
        gamma, beta = (change.gamma, change.beta) if adapter == "ssf" else (torch.ones(1), change.delta)
        layer.weight.mul_(gamma.view(-1, *(1,) * (layer.weight.ndim - 1)))
        layer.bias.mul_(gamma).add_(beta)

    adapting: Any = model.adapter
    mapped(stock.patch_embed.proj, adapting.after_embed)
    mapped(stock.norm, adapting.after_norm)
    for block, own in zip(stock.blocks, adapting.blocks, strict=True):
        mapped(block.norm1, own.norm1)
        mapped(block.attn.qkv, own.after_qkv)
        mapped(block.attn.proj, own.after_proj)
        mapped(block.norm2, own.norm2)
        mapped(block.mlp.fc1, own.after_fc1)
        mapped(block.mlp.fc2, own.after_fc2)
    assert_alike(model, stock)


@pytest.mark.parametrize(("adapter", "blocks"), [("vpt-shallow", 1), ("vpt-deep", 3)])
def test_prompts_stand_between_the_class_token_and_the_patches(backbone: Backbone, adapter: str, blocks: int) -> None:
    model = model_of(backbone, adapter, "none")
    vit: Any = backbone.vit
    prompts = [block.prompts for block in model.adapter.blocks if hasattr(block, "prompts")]
    assert len(prompts) == blocks
    with torch.inference_mode():
        x = vit._pos_embed(vit.patch_embed(IMAGES))
        patches = x.shape[1] - 1
        for index, block in enumerate(vit.blocks):
            if index < len(prompts):
                own = prompts[index].expand(len(x), -1, -1)
                x = torch.cat([x[:, :1], own, x[:, -patches:]], dim=1)
            x = block(x)
        torch.testing.assert_close(model.tokens(IMAGES).x, vit.norm(x), rtol=1e-4, atol=1e-4)
    assert model.tokens_in == model.tokens_out == model.unreduced().tokens_out == x.shape[1]


STARTS: dict[str, list[dict[str, object]]] = {
    "adaptformer": [{}, {"bits": 1}],
    "bitfit": [{}],
    "convpass": [{}],
    "fact-tk": [{}],
    "fact-tt": [{}],
    "full": [{}],
    "lora": [{}, {"targets": "k+fc1"}, {"targets": "qkv+proj+fc2"}, {"bits": 1}],
    "repadapter": [{}, {"groups": 1}],
}


@pytest.mark.parametrize(
    ("adapter", "arguments"), [(kind, arguments) for kind, given in STARTS.items() for arguments in given], ids=str
)
def test_training_starts_at_the_backbone(backbone: Backbone, adapter: str, arguments: dict[str, object]) -> None:
    """A quantised matrix has a spread, which is small."""
    torch.manual_seed(0)
    adapting = build_adapter(adapter, backbone.geometry, arguments)
    reducer = build_reducer("none", backbone.geometry, Layout.of(backbone.geometry), {})
    model = AdaptedViT(backbone, adapting, reducer, nn.Identity()).eval()
    stock: Any = backbone.vit
    with torch.inference_mode():
        expected = stock.forward_features(IMAGES)
        torch.testing.assert_close(model.tokens(IMAGES).x, expected, rtol=0, atol=0.02 if "bits" in arguments else 1e-5)


def test_matching_starts_at_the_keys(backbone: Backbone) -> None:
    torch.manual_seed(0)
    geometry = backbone.geometry
    found = []
    for refine in (True, False):
        reducer = build_reducer("bdm", geometry, Layout.of(geometry), {"block": 1, "refine": refine})
        model = AdaptedViT(backbone, build_adapter("none", geometry, {}), reducer, nn.Identity()).eval()
        with torch.inference_mode():
            found.append(model.tokens(IMAGES).size)
    assert torch.equal(*found)


def test_prompts_start_uniform_within_their_bound() -> None:
    backbone = new_backbone()  # of patches of 3 * 8 * 8 numbers, and 24 channels
    adapter = build_adapter("vpt-deep", backbone.geometry, {"prompts": 200})
    started = torch.cat([value.flatten() for value in adapter.parameters()])
    bound = (6 / (192 + 24)) ** 0.5
    assert bound * 0.99 < started.abs().max() <= bound
    assert started.std().item() == pytest.approx(bound / 3**0.5, rel=0.05)
