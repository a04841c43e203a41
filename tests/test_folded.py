"""Folded tasks answer alike, hold what they do not share and no more, and stay within their budget."""

from __future__ import annotations

import dataclasses
import gc
import weakref
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from serving import Files, write_task
from small import BDM, LORA_TARGETS, small_backbone, small_header
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from fpet.adapters import ADAPTERS
from fpet.embedded import default_backbone, task_path
from fpet.header import Method
from fpet.images import to_rgb
from fpet.task import Task
from service.engine import Engine
from service.errors import ConflictError
from service.metrics import Metrics
from service.model.folded import Instance, make_instance
from service.model.folded_cache import FoldedCache
from service.model.loaded import LoadedTask
from service.model.work import BatchKey, Output, Work

pytestmark = pytest.mark.usefixtures("one_thread")

CPU = torch.device("cpu")
FOLDABLE = [
    *(Method(kind) for kind, method in ADAPTERS.items() if method.foldable),
    *(Method("lora", {"targets": targets}) for targets in LORA_TARGETS),
]
IMAGES = torch.randint(0, 256, (5, 3, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
SAMPLES = sorted(Path("weights/samples/digits").glob("*.png"))
OTHERS = sorted(set(Path("weights/samples").glob("*/*.png")) - set(SAMPLES))[::3]
BATCH = 16  # as in service, where larger ones are computed in another way


def load(files: Files, folder: Path, adapter: Method, dtype: torch.dtype = torch.float32) -> tuple[Engine, LoadedTask]:
    """A task with weights that matter."""
    engine = Engine.start(files.backbone, CPU, dtype, Metrics([], []))
    path, backbone = folder / "digits.safetensors", small_backbone()
    write_task(path, dataclasses.replace(small_header(backbone, adapter, BDM)), backbone)
    return engine, engine.load(Task.load(path), 1)


def instance_of(engine: Engine, task: LoadedTask) -> Instance:
    return make_instance(Task.load(task.path).build(small_backbone()), engine.backbone.vit)


def test_only_what_folding_changed_is_compared(small_files: Files, tmp_path: Path) -> None:
    """On a GPU each comparison is a copy there and a wait."""
    engine, task = load(small_files, tmp_path, Method("lora"))
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        instance_of(engine, task)
    (equal,) = [event.count for event in profiled.key_averages() if event.key == "aten::equal"]
    assert equal == 2 * 2  # weight and bias of queries, keys and values, in each of two blocks


def tensors(*modules: nn.Module) -> list[Tensor]:
    return [tensor for module in modules for tensor in (*module.parameters(), *module.buffers())]


def layer_bytes(instance: Instance) -> int:
    """Without those of the reducer."""
    return instance.bytes - sum(tensor.nbytes for tensor in tensors(instance.reduced.reducer))


def answers(engine: Engine, group: BatchKey, task: LoadedTask, images: Sequence[Tensor]) -> list[Output]:
    return engine.run(group, [Work(task, image) for image in images])


@pytest.mark.parametrize("adapter", FOLDABLE, ids=str)
def test_answers_are_those_of_the_adapter_and_bytes_what_is_not_shared(
    small_files: Files, tmp_path: Path, adapter: Method
) -> None:
    engine, task = load(small_files, tmp_path, adapter)
    before = {name: value.clone() for name, value in engine.backbone.vit.state_dict().items()}
    instance = instance_of(engine, task)
    for reduced in (True, False):
        mixed = answers(engine, BatchKey(task.family, reduced), task, list(IMAGES))
        folded = answers(engine, BatchKey(task.family, reduced, instance), task, list(IMAGES))
        for one, other in zip(mixed, folded, strict=True):
            torch.testing.assert_close(one.logits, other.logits, rtol=1e-4, atol=1e-4)
            torch.testing.assert_close(one.embedding, other.embedding, rtol=1e-4, atol=1e-4)
    shared = {tensor.data_ptr() for tensor in tensors(engine.backbone.vit)}
    own = {tensor.data_ptr(): tensor for tensor in tensors(instance.reduced, instance.full)}
    assert instance.bytes == sum(own[place].nbytes for place in own.keys() - shared)
    assert all(torch.equal(value, before[name]) for name, value in engine.backbone.vit.state_dict().items())


def test_what_folding_leaves_alone_is_held_once(small_files: Files, tmp_path: Path) -> None:
    expected = {
        "none": 0,
        "bitfit": 2 * (3 * 24 + 24 + 96 + 24) + 2 * 24,  # biases: of two blocks' layers, the patches, the last norm
        "lora": 2 * (3 * 24 * 24),  # queries, keys and values in two blocks, without their biases
    }
    for kind, numbers in expected.items():
        engine, task = load(small_files, tmp_path, Method(kind))
        assert layer_bytes(instance_of(engine, task)) == 4 * numbers, kind


def test_in_bfloat16_a_small_update_is_not_rounded_away(small_files: Files, tmp_path: Path) -> None:
    """Folded in float32 and rounded once, each weight is the nearest there is to the exact one."""
    engine, task = load(small_files, tmp_path, Method("lora", {"scale": 0.001}), torch.bfloat16)
    file = Task.load(task.path)
    exact = make_instance(file.build(small_backbone()), small_backbone().vit)
    rounded = instance_of(engine, task)
    assert layer_bytes(rounded) * 2 == layer_bytes(exact)
    weight, expected, frozen = (
        vit.get_submodule("blocks.0.attn.qkv").weight
        for vit in (rounded.reduced.vit, exact.reduced.vit, engine.backbone.vit)
    )
    assert torch.equal(weight, expected.to(torch.bfloat16))
    assert not torch.equal(weight, frozen)


def test_the_embedded_task_answers_alike_in_bfloat16() -> None:
    """Its logits are as close to those of float32 as they are unfolded, and every sample gets the same label.

    How close ten pictures are is chance: those of the other tasks are asked about too.
    """
    path = task_path("digits")
    logits: dict[str, Tensor] = {}
    backbones = {}
    for dtype in (torch.float32, torch.bfloat16):
        engine = Engine.start(default_backbone(), CPU, dtype, Metrics([], []))
        backbones[dtype] = engine.backbone
        task = engine.load(Task.load(path), 1)
        instance = make_instance(Task.load(path).build(backbones[torch.float32]), engine.backbone.vit)
        resize = task.header.preprocessing.resize
        images = [resize(to_rgb(Image.open(sample))) for sample in (*SAMPLES, *OTHERS)]
        for name, folded in (("mixed", None), ("folded", instance)):
            group = BatchKey(task.family, True, folded)
            batches = [images[i : i + BATCH] for i in range(0, len(images), BATCH)]
            outputs = [output for batch in batches for output in answers(engine, group, task, batch)]
            logits[f"{dtype} {name}"] = torch.from_numpy(np.stack([output.logits for output in outputs]))
    exact, folded_exact, mixed, folded = logits.values()
    torch.testing.assert_close(folded_exact, exact, rtol=1e-4, atol=1e-4)
    own = slice(len(SAMPLES))
    assert torch.equal(folded[own].argmax(dim=1), exact[own].argmax(dim=1))
    assert torch.equal(mixed[own].argmax(dim=1), exact[own].argmax(dim=1))
    assert (folded - exact).square().mean().sqrt() <= 1.25 * (mixed - exact).square().mean().sqrt()


@pytest.fixture(scope="module")
def instance(small_files: Files, tmp_path_factory: pytest.TempPathFactory) -> Instance:
    return instance_of(*load(small_files, tmp_path_factory.mktemp("one"), Method("lora")))


def sized(instance: Instance, size: int) -> Instance:
    """Another one with so many bytes."""
    return dataclasses.replace(instance, bytes=size)


def kept(cache: FoldedCache[str]) -> str:
    return "".join(key for key in "abcdef" if cache.look(key)[0] is not None)


def test_what_was_not_asked_for_the_longest_makes_room(instance: Instance) -> None:
    evicted: list[None] = []
    cache: FoldedCache[str] = FoldedCache(100, lambda: evicted.append(None))
    for key in "abc":
        cache.add(key, sized(instance, 30))
    assert (kept(cache), cache.bytes, len(evicted)) == ("abc", 90, 0)
    assert cache.use("a") is not None
    cache.look("b")  # is not to ask for it
    cache.add("d", sized(instance, 30))
    assert (kept(cache), cache.bytes, len(evicted)) == ("acd", 90, 1)
    cache.add("e", sized(instance, 65))
    assert (kept(cache), cache.bytes, len(evicted)) == ("de", 95, 3)
    cache.add("e", sized(instance, 10))  # in its own place
    assert (kept(cache), cache.bytes, len(evicted)) == ("de", 40, 3)


def test_what_is_pinned_stays_and_what_cannot_fit_is_refused(instance: Instance) -> None:
    cache: FoldedCache[str] = FoldedCache(100, lambda: None)
    assert not cache.pin("a")
    cache.add("a", sized(instance, 80), pinned=True)
    cache.add("a", sized(instance, 60), pinned=True)  # in its own place
    cache.add("b", sized(instance, 40))
    with pytest.raises(ConflictError, match=r"has 41 bytes; of the 100 of folded_bytes 60 are taken by .* pinned$"):
        cache.add("c", sized(instance, 41), pinned=True)
    assert kept(cache) == "ab"
    cache.add("c", sized(instance, 20))
    assert (kept(cache), cache.look("a")[1], cache.look("c")[1]) == ("ac", True, False)
    assert cache.pin("c")
    cache.unpin("a")
    cache.add("d", sized(instance, 50))
    assert kept(cache) == "cd"
    cache.retain(["d"])
    assert (kept(cache), cache.look("c")[1], cache.bytes) == ("d", False, 50)
    assert cache.pin("d")
    cache.discard("d")
    cache.discard("d")
    assert (cache.bytes, cache.pin("d")) == (0, False)
    with pytest.raises(ConflictError, match="of the 0 of folded_bytes"):
        FoldedCache[str](0, lambda: None).add("a", instance)


def test_what_is_put_in_again_counts_as_asked_for(instance: Instance) -> None:
    cache: FoldedCache[str] = FoldedCache(80, lambda: None)
    for key in "abac":
        cache.add(key, sized(instance, 40))
    assert kept(cache) == "ac"
    cache.add("a", sized(instance, 50))  # it does not make room for itself
    assert kept(cache) == "a"


@pytest.mark.parametrize(("size", "room"), [(40, True), (41, False), (101, False)])
def test_what_fits_is_what_finds_room(instance: Instance, size: int, room: bool) -> None:
    cache: FoldedCache[str] = FoldedCache(100, lambda: None)
    cache.add("a", sized(instance, 30), pinned=True)
    for key in "bc":
        cache.add(key, sized(instance, 30))
    assert cache.fits("d", size, lambda key: key == "b") == room
    assert cache.fits("c", size + 30, lambda key: key == "b") == room  # in its own place
    assert kept(cache) == "abc"


def test_only_what_may_go_makes_room(instance: Instance) -> None:
    cache: FoldedCache[str] = FoldedCache(100, lambda: None)
    for key in "abc":
        cache.add(key, sized(instance, 30))
    cache.add("d", sized(instance, 30), spare=lambda key: key == "b")
    assert kept(cache) == "acd"
    with pytest.raises(ConflictError, match="90 are taken by tasks that are pinned or about as hot"):
        cache.add("e", sized(instance, 30), spare=lambda key: key == "b")
    assert kept(cache) == "acd"


def test_who_may_go_is_asked_once(instance: Instance) -> None:
    cache: FoldedCache[str] = FoldedCache(100, lambda: None)
    cache.add("a", sized(instance, 60))
    asked: list[str] = []

    def spare(key: str) -> bool:
        asked.append(key)
        return len(asked) == 1  # what is hot changes meanwhile

    cache.add("b", sized(instance, 60), spare=spare)
    assert (asked, cache.bytes) == (["a"], 60)


def test_memory_returns_when_one_is_evicted(small_files: Files, tmp_path: Path) -> None:
    engine, task = load(small_files, tmp_path, Method("repadapter"))
    first = instance_of(engine, task)
    cache: FoldedCache[str] = FoldedCache(first.bytes, lambda: None)
    cache.add("a", first)
    weight = weakref.ref(first.reduced.vit.get_submodule("blocks.0.attn.qkv").weight)
    group = BatchKey(task.family, True, cache.use("a"))
    del first
    cache.add("b", instance_of(engine, task))
    assert kept(cache) == "b"
    answers(engine, group, task, list(IMAGES))  # who began with it finishes with it
    assert weight() is not None
    del group
    gc.collect()
    assert weight() is None
