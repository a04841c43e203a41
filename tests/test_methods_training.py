"""A step of training, of every adapter with every reducer."""

from __future__ import annotations

import pytest
import torch
from pairs import IMAGES, PAIRS, model_of, new_backbone
from torch import Tensor, nn

from fpet.adapters import ADAPTERS
from fpet.adapters.vpt import PromptBlock
from fpet.backbone import Backbone
from fpet.reducers.bdm import KeyRefinement
from fpet.registry import build, keyword_parameters
from fpet.vit import AdaptedViT


@pytest.fixture(scope="module")
def backbone() -> Backbone:
    return new_backbone()


def gradients(model: AdaptedViT, *, autocast: bool = False) -> dict[str, Tensor]:
    """Of all that trains, by its name, in a step of training; autocast: to bfloat16."""
    model.train()
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    # What the thresholds of LTMP's last block leave out no class token sees: they learn from the penalty alone.
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        tokens, sizes = model.encode(IMAGES)
        logits = model.head(model.pool(tokens))
    loss = logits.float().square().sum() + model.reducer.penalty(sizes)
    names, parameters = zip(*model.trainable().named_parameters(), strict=True)
    return dict(zip(names, torch.autograd.grad(loss, parameters), strict=True))


@pytest.mark.parametrize(("adapter", "reducer"), PAIRS)
def test_gradients_reach_every_parameter_of_the_task_and_none_of_the_backbone(
    backbone: Backbone, adapter: str, reducer: str
) -> None:
    for name, gradient in gradients(model_of(backbone, adapter, reducer)).items():
        assert gradient.abs().sum() > 0, name
    assert not any(parameter.requires_grad for parameter in backbone.vit.parameters())


def test_the_backbone_stays_frozen_whatever_is_asked_to_train(backbone: Backbone) -> None:
    model = model_of(backbone, "lora", "bdm")
    for asked in (False, True):
        assert model.requires_grad_(asked) is model
        assert all(parameter.requires_grad == asked for parameter in model.trainable().parameters())
        assert not any(parameter.requires_grad for parameter in backbone.vit.parameters())


@pytest.mark.parametrize(("adapter", "reducer"), PAIRS)
def test_under_autocast_gradients_are_nearly_those_of_float32(backbone: Backbone, adapter: str, reducer: str) -> None:
    exact = gradients(model_of(backbone, adapter, reducer))
    rounded = gradients(model_of(backbone, adapter, reducer), autocast=True)
    both = [torch.cat([each.flatten() for each in found.values()]) for found in (exact, rounded)]
    assert torch.cosine_similarity(*both, dim=0) > 0.99


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_under_autocast_no_adapter_lifts_what_it_changes_to_float32(backbone: Backbone, adapter: str) -> None:
    model, dtypes = model_of(backbone, adapter, "none"), []
    hooks = [
        block.mlp.act.register_forward_pre_hook(lambda _, inputs: dtypes.append(inputs[0].dtype))
        for block in backbone.vit.blocks
    ]
    with torch.autocast("cpu", torch.bfloat16), torch.inference_mode():
        model(IMAGES)
    for hook in hooks:
        hook.remove()
    assert dtypes == [torch.bfloat16] * 3


DROPPING = [kind for kind, method in ADAPTERS.items() if "dropout" in keyword_parameters(method)]


@pytest.mark.parametrize("adapter", [kind for kind in DROPPING if not kind.startswith("vpt")])
def test_dropout_takes_away_what_the_adapter_adds(backbone: Backbone, adapter: str) -> None:
    """All of it, where everything is dropped and the last maps have no bias."""
    model = model_of(backbone, adapter, "none").train()
    for module in model.adapter.modules():
        if isinstance(module, nn.Dropout):
            assert module.p == 0.1
            module.p = 1.0
    with torch.inference_mode():
        for name, parameter in model.adapter.named_parameters():
            if name.endswith("bias"):
                parameter.zero_()
        bare = model_of(backbone, "none", "none").features(IMAGES)
        torch.testing.assert_close(model.features(IMAGES), bare)
        assert not torch.allclose(model.eval().features(IMAGES), bare, rtol=1e-2, atol=1e-2)


def test_dropout_takes_away_what_the_refinement_adds() -> None:
    torch.manual_seed(0)
    refine, key = KeyRefinement(8, 4, bits=32, dropout=1.0), torch.randn(2, 5, 8)
    nn.init.normal_(refine.up.weight)
    assert torch.equal(refine.train()(key), key)
    assert not torch.allclose(refine.eval()(key), key)


def test_each_image_drops_prompts_of_its_own(backbone: Backbone) -> None:
    torch.manual_seed(0)
    adapter = build(ADAPTERS, "vpt-shallow", backbone.geometry, arguments={"prompts": 9, "dropout": 0.5})
    block = adapter.train().blocks[0]
    assert isinstance(block, PromptBlock)
    prompts = block.enter(torch.zeros(2, 17, backbone.geometry.embed_dim))[:, 1:10]
    assert not torch.equal(*prompts)
