"""One contract for every adapter with every reducer."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from small import perturb
from torch import Tensor, nn
from torch.export import Dim

from fpet.adapters import ADAPTERS, lora
from fpet.adapters.base import Adapter, BlockAdapter
from fpet.backbone import Backbone, create_backbone, fingerprint
from fpet.errors import TaskError, UnsupportedError
from fpet.fold import fold
from fpet.header import BackboneRef, Method, TaskHeader
from fpet.methods import methods
from fpet.preprocess import Preprocessing
from fpet.reducers import REDUCERS
from fpet.reducers.none import NoReduction
from fpet.registry import build
from fpet.task import Task, new_model, save_task
from fpet.tokens import Layout
from fpet.vit import AdaptedViT

SMALL: dict[str, object] = {"img_size": 32, "patch_size": 8, "embed_dim": 24, "depth": 3, "num_heads": 3}
ARGUMENTS: dict[str, dict[str, Any]] = {
    "vpt-shallow": {"prompts": 2},
    "vpt-deep": {"prompts": 2},
    "lora": {"dim": 4},
    "adaptformer": {"dim": 4},
    "convpass": {"dim": 4},
    "repadapter": {"dim": 4},
    "fact-tt": {"rank": 4},
    "fact-tk": {"rank": 4},
    "bdm": {"block": 0, "dim": 8},
    "bsm": {"block": 1},
    "tome": {"r": 2},
    "average-pool": {"block": [0, 1]},
    "max-pool": {"block": 1},
}
# Convpass convolves over the grid of patches, which reductions leave.
REFUSED = [("convpass", reducer) for reducer in ("bdm", "bsm", "tome", "ltmp", "average-pool", "max-pool")]
PAIRS = [pair for pair in itertools.product(ADAPTERS, REDUCERS) if pair not in REFUSED]
# For what takes seconds a pair: every adapter with and without tokens that merge, and every reducer with and without
# prompts. What a graph holds of an adapter depends on a reducer by the number of tokens alone.
TRACED = [pair for pair in PAIRS if pair[0] in ("adaptformer", "vpt") or pair[1] in ("none", "bdm")]
IMAGES = torch.randn((3, 3, 32, 32), generator=torch.Generator().manual_seed(3))


@pytest.fixture(scope="module")
def backbone() -> Backbone:
    torch.manual_seed(0)
    backbone = create_backbone("vit_tiny_patch16_224", SMALL)
    perturb(backbone.vit, 0.05)
    return backbone


def header_of(backbone: Backbone, adapter: str, reducer: str) -> TaskHeader:
    return TaskHeader(
        name="pair",
        backbone=BackboneRef(backbone.architecture, backbone.arguments, backbone.fingerprint),
        adapter=Method(adapter, ARGUMENTS.get(adapter, {})),
        reducer=Method(reducer, ARGUMENTS.get(reducer, {})),
        labels=tuple("abcde"),
        preprocessing=Preprocessing((32, 32)),
    )


def model_of(backbone: Backbone, adapter: str, reducer: str) -> AdaptedViT:
    """A model none of whose parameters is zero, so that each has a part in the answer."""
    torch.manual_seed(1)
    model = new_model(header_of(backbone, adapter, reducer), backbone)
    perturb(model.trainable(), 0.2)
    return model.eval()


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
    assert all(parameter.grad is None for parameter in backbone.vit.parameters())


@pytest.mark.parametrize(("adapter", "reducer"), PAIRS)
def test_under_autocast_gradients_are_nearly_those_of_float32(backbone: Backbone, adapter: str, reducer: str) -> None:
    exact = gradients(model_of(backbone, adapter, reducer))
    rounded = gradients(model_of(backbone, adapter, reducer), autocast=True)
    both = [torch.cat([each.flatten() for each in found.values()]) for found in (exact, rounded)]
    assert torch.cosine_similarity(*both, dim=0) > 0.99


@pytest.mark.parametrize(("adapter", "reducer"), PAIRS)
def test_a_batch_answers_as_its_images_alone(backbone: Backbone, adapter: str, reducer: str) -> None:
    model = model_of(backbone, adapter, reducer)
    with torch.inference_mode():
        together = model(IMAGES)
        alone = torch.cat([model(image[None]) for image in IMAGES])
    torch.testing.assert_close(alone, together, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("adapter", "reducer"), PAIRS)
def test_sizes_sum_to_the_number_of_tokens(backbone: Backbone, adapter: str, reducer: str) -> None:
    model = model_of(backbone, adapter, reducer)
    if reducer == "ltmp":  # which alone prunes: what it merges counts
        for block in model.reducer.blocks:
            nn.init.zeros_(block.prune_threshold)
    with torch.inference_mode():
        x, size = model.tokens(IMAGES)
    # How many LTMP leaves depends on the images.
    assert x.shape[1] <= model.tokens_out if reducer == "ltmp" else x.shape[1] == model.tokens_out
    if size is None:
        assert model.tokens_out == model.tokens_in
    else:
        assert torch.equal(size.sum(dim=1), torch.full((3, 1), float(model.tokens_in)))


@pytest.mark.parametrize(("adapter", "reducer"), PAIRS)
def test_a_saved_task_answers_alike(backbone: Backbone, tmp_path: Path, adapter: str, reducer: str) -> None:
    model = model_of(backbone, adapter, reducer)
    save_task(tmp_path / "pair.safetensors", header_of(backbone, adapter, reducer), model)
    with torch.inference_mode():
        loaded = Task.load(tmp_path / "pair.safetensors").build(backbone)
        torch.testing.assert_close(loaded(IMAGES), model(IMAGES), rtol=0, atol=1e-5)


@pytest.mark.parametrize(("adapter", "reducer"), PAIRS)
def test_bfloat16_answers_nearly_alike(adapter: str, reducer: str) -> None:
    torch.manual_seed(0)
    backbone = create_backbone("vit_tiny_patch16_224", SMALL)
    model = model_of(backbone, adapter, reducer)
    with torch.inference_mode():
        exact = model(IMAGES)
        rounded = model.to(torch.bfloat16)(IMAGES.bfloat16())
    assert rounded.dtype == torch.bfloat16
    assert (rounded - exact).norm() < 0.1 * exact.norm()


@pytest.mark.filterwarnings("ignore")  # the compiler's own
@pytest.mark.parametrize(("adapter", "reducer"), TRACED)
def test_one_graph_holds_the_whole_forward(backbone: Backbone, adapter: str, reducer: str) -> None:
    model = model_of(backbone, adapter, reducer)
    torch.compiler.reset()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    with torch.inference_mode():
        torch.testing.assert_close(compiled(IMAGES), model(IMAGES), rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore")  # the exporter's own
@pytest.mark.parametrize(("adapter", "reducer"), TRACED)
def test_an_exported_model_takes_another_batch_size(backbone: Backbone, adapter: str, reducer: str) -> None:
    model = model_of(backbone, adapter, reducer)
    program = torch.export.export(model, (IMAGES,), dynamic_shapes=({0: Dim("batch", min=1, max=64)},))
    more = IMAGES.repeat(2, 1, 1, 1)
    with torch.inference_mode():
        torch.testing.assert_close(program.module()(more), model(more), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("adapter", [kind for kind, method in ADAPTERS.items() if method.foldable])
@pytest.mark.parametrize("reducer", REDUCERS)
def test_a_folded_model_answers_alike(backbone: Backbone, adapter: str, reducer: str) -> None:
    model = model_of(backbone, adapter, reducer)
    before = fingerprint(backbone.vit)
    folded = fold(model)
    assert not list(folded.adapter.parameters())
    with torch.inference_mode():
        torch.testing.assert_close(folded(IMAGES), model(IMAGES), rtol=1e-4, atol=1e-4)
    assert fingerprint(backbone.vit) == before
    assert (folded.backbone.fingerprint == before) == (adapter == "none")
    shared = {id(p) for p in backbone.vit.parameters()} & {id(p) for p in folded.vit.parameters()}
    assert (id(backbone.vit.pos_embed) in shared) == (adapter != "full")


@pytest.mark.parametrize("adapter", [kind for kind, method in ADAPTERS.items() if not method.foldable])
def test_what_does_not_fold_is_refused(backbone: Backbone, adapter: str) -> None:
    with pytest.raises(UnsupportedError, match="does not fold"):
        fold(model_of(backbone, adapter, "none"))


def test_the_method_in_the_contributing_guide_works(backbone: Backbone) -> None:
    guide = (Path(__file__).parent.parent / "CONTRIBUTING.md").read_text()
    (block,) = re.findall(r"^```python\n(.*?)^```", guide, re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {**vars(lora), "BlockAdapter": BlockAdapter, "Adapter": Adapter}
    exec(compile(block, "CONTRIBUTING.md", "exec", dont_inherit=True), names)
    torch.manual_seed(0)
    adapter = build({"lora-v": names["ValueLoRA"]}, "lora-v", backbone.geometry, arguments={"dim": 4})
    for parameter in adapter.parameters():
        nn.init.normal_(parameter, std=0.2)
    model = AdaptedViT(backbone, adapter, NoReduction(backbone.geometry, Layout.of(backbone.geometry)), nn.Identity())
    with torch.inference_mode():
        torch.testing.assert_close(fold(model)(IMAGES), model.eval()(IMAGES), rtol=1e-4, atol=1e-4)
        assert not torch.allclose(model(IMAGES), model_of(backbone, "none", "none").features(IMAGES), atol=1e-3)


@pytest.mark.parametrize(("adapter", "reducer"), REFUSED)
def test_pairs_that_cannot_go_together_are_refused_by_name(
    backbone: Backbone, tmp_path: Path, adapter: str, reducer: str
) -> None:
    named = f"Convpass needs all patches on their grid, which {REDUCERS[reducer].__name__} does not"
    block = {"bsm": 1, "max-pool": 1}.get(reducer, 0)
    with pytest.raises(UnsupportedError, match=rf"{named} leave there at block {block}: they cannot"):
        new_model(header_of(backbone, adapter, reducer), backbone)
    model = model_of(backbone, adapter, "none")
    save_task(tmp_path / "pair.safetensors", header_of(backbone, adapter, reducer), model)
    with pytest.raises(TaskError, match=rf"pair\.safetensors: {named}"):
        Task.load(tmp_path / "pair.safetensors").build(backbone)


COUNTS = {
    "none": 0,
    "full": 85_798_656 - 768,  # all of ViT-B/16, a class token and its position in one
    "bitfit": 102_912,
    "vpt-shallow": 10 * 768,
    "vpt-deep": 12 * 10 * 768,
    "lora": 294_912,
    "adaptformer": 147_456,
    "convpass": 327_552,
    "repadapter": 239_808,
    "ssf": 205_824,
    "fact-tt": 61_440,
    "fact-tk": 30_976,
}


def test_the_description_is_read_off_the_code() -> None:
    described = {(method.role, method.kind): method for method in methods()}
    assert [kind for _, kind in described] == [*ADAPTERS, *REDUCERS]
    assert {kind: described["adapter", kind].parameters for kind in ADAPTERS} == COUNTS
    assert described["reducer", "bdm"].parameters == 4096
    assert described["reducer", "bdm"].tokens == 99
    assert described["reducer", "tome"].tokens == 101
    assert described["reducer", "ltmp"].parameters == 24
    refused = {
        (kind, other) for (role, kind), method in described.items() if role == "adapter" for other in method.refuses
    }
    assert refused == set(REFUSED)
    assert refused == {
        (other, kind) for (role, kind), m in described.items() if role == "reducer" for other in m.refuses
    }
    assert described["adapter", "lora"].foldable
    defaults = {"dim": 8, "scale": 1.0, "bits": 32, "dropout": 0.1, "targets": "q+v"}
    assert described["adapter", "lora"].arguments == defaults
    assert described["reducer", "bdm"].arguments["block"] is None
