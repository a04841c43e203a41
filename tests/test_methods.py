"""One contract for every adapter with every reducer."""

from __future__ import annotations

import dataclasses
import itertools
import re
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from pairs import ARGUMENTS, IMAGES, PAIRS, REFUSED, SMALL, header_of, model_of, new_backbone
from torch import nn

from fpet.adapters import ADAPTERS
from fpet.backbone import Backbone, create_backbone
from fpet.backbone_files.described import fingerprint
from fpet.errors import TaskError, UnsupportedError
from fpet.folding import fold
from fpet.header import Method
from fpet.inference.mixed import Template
from fpet.inference.task_weights import Weights
from fpet.linear import LowBitLinear
from fpet.methods import methods
from fpet.reducers import REDUCERS
from fpet.reducers.none import NoReduction
from fpet.registry import build, keyword_parameters
from fpet.task import Task, new_model, save_task
from fpet.tokens import Layout, Tokens
from fpet.vit import AdaptedViT


@pytest.fixture(scope="module")
def backbone() -> Backbone:
    return new_backbone()


@pytest.mark.parametrize(("adapter", "reducer"), PAIRS)
def test_a_batch_answers_as_its_images_alone(backbone: Backbone, adapter: str, reducer: str) -> None:
    model = model_of(backbone, adapter, reducer)
    with torch.inference_mode():
        together = model(IMAGES)
        alone = torch.cat([model(image[None]) for image in IMAGES])
    torch.testing.assert_close(alone, together, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("adapter", "reducer"), PAIRS)
def test_a_batch_may_be_empty(adapter: str, reducer: str, dtype: torch.dtype) -> None:
    model = model_of(new_backbone(), adapter, reducer).to(dtype)
    with torch.inference_mode():
        assert model(IMAGES[:0].to(dtype)).shape == (0, model(IMAGES.to(dtype)).shape[1])


@pytest.mark.parametrize(("adapter", "reducer"), PAIRS)
def test_sizes_sum_to_the_number_of_tokens(backbone: Backbone, adapter: str, reducer: str) -> None:
    model = model_of(backbone, adapter, reducer)
    if reducer == "ltmp":  # which alone prunes; here it merges what is at all alike
        for block in model.reducer.blocks:
            nn.init.zeros_(block.prune_threshold)
            nn.init.constant_(block.merge_threshold, 0.5)
    with torch.inference_mode():
        x, size = model.tokens(IMAGES)
    # How many LTMP leaves depends on the images.
    assert x.shape[1] < model.tokens_out if reducer == "ltmp" else x.shape[1] == model.tokens_out
    if size is None:
        assert model.tokens_out == model.tokens_in
    else:
        assert torch.equal(size.sum(dim=1), torch.full((3, 1), float(model.tokens_in)))


@pytest.mark.parametrize(("adapter", "reducer"), PAIRS)
def test_both_forwards_at_once_are_those_of_each(backbone: Backbone, adapter: str, reducer: str) -> None:
    model = model_of(backbone, adapter, reducer)
    ran: list[int] = []
    handles = [
        block.norm1.register_forward_hook(lambda *_, index=index: ran.append(index))
        for index, block in enumerate(backbone.vit.blocks)
    ]
    with torch.inference_mode():
        both = model.tokens_of_both(IMAGES, model.unreduced())
        for handle in handles:
            handle.remove()
        for one, tokens in zip((model, model.unreduced()), both, strict=True):
            x, size = one.tokens(IMAGES)
            assert torch.equal(tokens.x, x)
            assert (size is None) == (tokens.size is None)
            assert size is None or torch.equal(tokens.size, size)
    depth = len(backbone.vit.blocks)
    first = {"none": depth, "bsm": 1, "max-pool": 1}.get(reducer, 0)
    assert sorted(ran) == sorted([*range(depth), *range(first, depth)])


def test_an_adapter_that_writes_in_place_changes_neither_forward(backbone: Backbone) -> None:
    model = model_of(backbone, "lora", "bsm")
    model.adapter.blocks[1].enter = lambda x: x.cos_()
    with torch.inference_mode():
        both = model.tokens_of_both(IMAGES, model.unreduced())
        for one, tokens in zip((model, model.unreduced()), both, strict=True):
            assert torch.equal(tokens.x, one.tokens(IMAGES).x)


def test_arguments_are_a_dict() -> None:
    with pytest.raises(TypeError, match="a method's arguments are a dict, not None"):
        Method("lora", None)  # type: ignore[arg-type]


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


def of_the_guide(number: int) -> dict[str, Any]:
    """The names that a piece of code in the guide to contributing defines."""
    guide = (Path(__file__).parent.parent / "CONTRIBUTING.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", guide, re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(blocks[number], "CONTRIBUTING.md", "exec", dont_inherit=True), names)
    return names


def test_the_reduction_in_the_contributing_guide_works(backbone: Backbone) -> None:
    names = of_the_guide(1)
    place = backbone.geometry, Layout.of(backbone.geometry)
    reducer = build({"bsm-x": names["TokenMatching"]}, "bsm-x", *place, arguments={"block": 1})
    plain = model_of(backbone, "lora", "none")
    model = AdaptedViT(backbone, plain.adapter, reducer, plain.head).eval()
    block = reducer.blocks[1]
    x = torch.randn(2, model.tokens_in, 24)
    merged, size = block(Tokens(x, None), x, x)
    for image in range(len(x)):
        groups = {int(place): [x[image, place]] for place in block.b}
        for place in block.a:
            alike = {int(b): torch.cosine_similarity(x[image, place], x[image, b], dim=0) for b in block.b}
            groups[max(alike, key=alike.__getitem__)].append(x[image, place])
        expected = [x[image, 0], *(torch.stack(group).mean(dim=0) for group in groups.values())]
        torch.testing.assert_close(merged[image], torch.stack(expected))
        assert size[image].flatten().tolist() == [1, *map(len, groups.values())]
    with torch.inference_mode():
        assert model.tokens(IMAGES).x.shape[1] == model.tokens_out == 9
        assert not torch.allclose(model(IMAGES), plain(IMAGES), atol=1e-3)


def test_the_method_in_the_contributing_guide_works(backbone: Backbone) -> None:
    names = of_the_guide(0)
    torch.manual_seed(0)
    models = []
    for _ in range(2):
        adapter = build({"lora-v": names["ValueLoRA"]}, "lora-v", backbone.geometry, arguments={"dim": 4})
        for parameter in adapter.parameters():
            nn.init.normal_(parameter, std=0.2)
        reducer = NoReduction(backbone.geometry, Layout.of(backbone.geometry))
        models.append(AdaptedViT(backbone, adapter, reducer, LowBitLinear(backbone.geometry.embed_dim, 5)).eval())
    first, second = models
    with torch.inference_mode():
        torch.testing.assert_close(fold(first)(IMAGES), first(IMAGES), rtol=1e-4, atol=1e-4)
        features = [model.features(IMAGES) for model in (first, second, model_of(backbone, "none", "none"))]
        assert not any(torch.allclose(*pair, atol=1e-3) for pair in itertools.combinations(features, 2))
        each = [Weights.of(model) for model in (first, second, first)]
        mixed = Template(first).features(each, IMAGES)
        alone = torch.stack([features[0][0], features[1][1], features[0][2]])
        torch.testing.assert_close(mixed, alone, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("adapter", "reducer"), REFUSED)
def test_pairs_that_cannot_go_together_are_refused_by_name(
    backbone: Backbone, tmp_path: Path, adapter: str, reducer: str
) -> None:
    named = f"Convpass needs all patches on their grid, which {REDUCERS[reducer].__name__} does not"
    block = {"bsm": 1, "max-pool": 1}.get(reducer, 0)
    with pytest.raises(UnsupportedError, match=rf"{named} leave there at block {block}: they cannot"):
        new_model(header_of(backbone, adapter, reducer), backbone)
    model = model_of(backbone, adapter, "none")
    save_task(tmp_path / "pair.safetensors", header_of(backbone, adapter, "none"), model)
    task = Task.load(tmp_path / "pair.safetensors")
    with pytest.raises(TaskError, match=rf"pair\.safetensors: {named}"):
        dataclasses.replace(task, header=header_of(backbone, adapter, reducer)).build(backbone)


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


def numbers_of(registry: Mapping[str, type[Any]]) -> Iterator[tuple[str, str]]:
    """Every method's arguments that may be a whole number."""
    for kind, method in registry.items():
        hints = typing.get_type_hints(method.__init__)
        for name in keyword_parameters(method):
            if int in (hints[name], *typing.get_args(hints[name])):
                yield kind, name


@pytest.mark.parametrize(("kind", "name"), [*numbers_of(ADAPTERS), *numbers_of(REDUCERS)])
def test_numbers_below_the_least_are_refused(backbone: Backbone, kind: str, name: str) -> None:
    geometry = backbone.geometry
    method: Any = ADAPTERS.get(kind) or REDUCERS[kind]
    place = () if kind in ADAPTERS else (Layout.of(geometry),)
    least = 0 if name in ("block", "r") else 1  # the first block, and no pair that merges
    for wrong in (least - 1, least - 2):
        arguments = {**ARGUMENTS.get(kind, {}), name: wrong}
        with pytest.raises(UnsupportedError, match=f"{name} = {wrong}|to {wrong} features is empty"):
            method(geometry, *place, **arguments)


def test_the_description_is_read_off_the_code() -> None:
    state = torch.get_rng_state()
    described = {(method.role, method.kind): method for method in methods()}
    assert torch.equal(torch.get_rng_state(), state)  # nor is there memory for full tuning
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
