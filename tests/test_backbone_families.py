"""Every family of backbones, square or not, with methods of every kind: one contract."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from pictures import encode, scene
from serving import serving
from small import perturb, small_header
from torch import nn
from torch.nn import functional as F

from fpet.backbone import Backbone, create_backbone, load_backbone, save_backbone
from fpet.cli import main
from fpet.errors import UnsupportedError
from fpet.folding import fold
from fpet.header import Method, TaskHeader
from fpet.images import to_rgb
from fpet.inference.programs import Batch, Program
from fpet.preprocess import Preprocessing
from fpet.task import Task, new_model, save_task
from fpet.vit import AdaptedViT, check_parity
from service.settings import Settings

pytestmark = pytest.mark.usefixtures("one_thread")

TINY: dict[str, object] = {"img_size": 32, "patch_size": 8, "embed_dim": 24, "depth": 2, "num_heads": 3}
FAMILIES: dict[str, tuple[str, dict[str, object]]] = {
    "ViT": ("vit_base_patch16_224", {}),
    "DeiT": ("deit_small_patch16_224", {}),
    "distilled DeiT": ("deit_small_distilled_patch16_224", {}),
    "DeiT-III": ("deit3_small_patch16_224", {"init_values": 0.5}),
    "DINOv2 with registers": ("vit_small_patch14_reg4_dinov2", {"init_values": 0.5}),
    "InternViT": ("vit_intern300m_patch14_448", {"init_values": 0.5}),  # takes images of any size, of itself
    "CLIP": ("vit_base_patch32_clip_quickgelu_224", {}),
    "mean of ViT": ("vit_base_patch16_224", {"global_pool": "avg"}),
    "mean of DINOv2": ("vit_small_patch14_reg4_dinov2", {"global_pool": "avg", "fc_norm": False}),
    "no class token": ("vit_base_patch16_224", {"class_token": False, "global_pool": "avg"}),
    "wide": ("vit_base_patch16_224", {"img_size": [16, 32]}),
    "tall and odd": ("deit_small_distilled_patch16_224", {"img_size": [40, 24]}),
}
PAIRS = [
    (Method("lora", {"dim": 4}), Method("bdm", {"block": 0, "dim": 8})),
    (Method("adaptformer", {"dim": 4}), Method("tome", {"r": 2})),
    (Method("vpt-deep", {"prompts": 2}), Method("average-pool", {"block": 0})),
    (Method("convpass", {"dim": 4}), Method("none")),
    (Method("ssf"), Method("bsm", {"block": 1})),
    (Method("full"), Method("none")),
]
CASES = list(itertools.product(FAMILIES, PAIRS))
NAMES = [f"{family}, {adapter.kind}, {reducer.kind}" for family, (adapter, reducer) in CASES]


def backbone_of(family: str) -> Backbone:
    """Random weights, none of them at a neutral value."""
    architecture, arguments = FAMILIES[family]
    torch.manual_seed(0)
    backbone = create_backbone(architecture, {**TINY, **arguments})
    perturb(backbone.vit, 0.05)
    return create_backbone(architecture, backbone.arguments, backbone.vit.state_dict())


def size_of(backbone: Backbone) -> tuple[int, int]:
    vit: Any = backbone.vit
    height, width = vit.patch_embed.img_size
    return height, width


def images_for(backbone: Backbone) -> torch.Tensor:
    return torch.randn(3, 3, *size_of(backbone), generator=torch.Generator().manual_seed(3))


def header_of(backbone: Backbone, adapter: Method, reducer: Method) -> TaskHeader:
    header = small_header(backbone, adapter, reducer)
    return dataclasses.replace(header, preprocessing=Preprocessing(size_of(backbone)))


def model_of(backbone: Backbone, adapter: Method, reducer: Method) -> AdaptedViT:
    torch.manual_seed(1)
    model = new_model(header_of(backbone, adapter, reducer), backbone)
    perturb(model.trainable(), 0.2)
    return model.eval()


@pytest.mark.parametrize("family", FAMILIES)
def test_the_forward_is_timms(family: str) -> None:
    backbone = backbone_of(family)
    vit: Any = backbone.vit
    model = model_of(backbone, Method("none"), Method("none"))
    images = images_for(backbone)
    check_parity(backbone)
    with torch.inference_mode():
        assert torch.equal(model.features(images), vit.forward_head(vit.forward_features(images), pre_logits=True))


@pytest.mark.parametrize(("family", "pair"), CASES, ids=NAMES)
def test_gradients_reach_every_parameter_of_the_task(family: str, pair: tuple[Method, Method]) -> None:
    backbone = backbone_of(family)
    model = model_of(backbone, *pair).train()
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    model(images_for(backbone)).square().sum().backward()
    for name, parameter in model.trainable().named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name
    assert all(parameter.grad is None for parameter in backbone.vit.parameters())


@pytest.mark.parametrize(("family", "pair"), CASES, ids=NAMES)
def test_a_saved_task_on_a_saved_backbone_answers_alike(
    family: str, pair: tuple[Method, Method], tmp_path: Path
) -> None:
    backbone = backbone_of(family)
    model = model_of(backbone, *pair)
    save_task(tmp_path / "task.safetensors", header_of(backbone, *pair), model)
    save_backbone(tmp_path / "backbone.safetensors", backbone)
    loaded = Task.load(tmp_path / "task.safetensors").build(load_backbone(tmp_path / "backbone.safetensors"))
    images = images_for(backbone)
    with torch.inference_mode():
        torch.testing.assert_close(loaded(images), model(images), rtol=0, atol=1e-5)
        size = model.tokens(images).size
    if size is not None:
        assert torch.equal(size.sum(dim=1), torch.full((3, 1), float(model.tokens_in)))


@pytest.mark.parametrize(("family", "pair"), CASES, ids=NAMES)
def test_a_program_answers_alike(family: str, pair: tuple[Method, Method]) -> None:
    backbone = backbone_of(family)
    model, images = model_of(backbone, *pair), images_for(backbone)
    with torch.inference_mode():
        program = Program(model, (), [(Batch(images[:2]), model.features(images[:2]))])
        assert torch.equal(program.features(Batch(images)), model.features(images))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_folded_task_answers_alike(family: str) -> None:
    backbone = backbone_of(family)
    model = model_of(backbone, Method("repadapter", {"dim": 4}), Method("bdm", {"block": 0, "dim": 8}))
    images = images_for(backbone)
    with torch.inference_mode():
        torch.testing.assert_close(fold(model)(images), model(images), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("adapter", ["bitfit", "ssf", "full"])
def test_a_map_after_the_final_norm_folds_wherever_that_is(family: str, adapter: str) -> None:
    backbone = backbone_of(family)
    vit: Any = backbone.vit
    model, images = model_of(backbone, Method(adapter), Method("none")), images_for(backbone)
    name = "fc_norm" if isinstance(vit.norm, nn.Identity) else "norm"
    if isinstance(getattr(vit, name), nn.Identity):
        assert family == "InternViT"
        with pytest.raises(UnsupportedError, match="no final norm"):
            fold(model)
        return
    folded = fold(model)
    with torch.inference_mode():
        torch.testing.assert_close(folded(images), model(images), rtol=1e-4, atol=1e-4)
    assert not torch.equal(getattr(folded.vit, name).bias, getattr(vit, name).bias)


def test_the_two_heads_of_a_distilled_backbone_are_averaged_as_in_timm() -> None:
    backbone = backbone_of("distilled DeiT")
    stock = timm.create_model(backbone.architecture, num_classes=5, **backbone.arguments).eval()
    stock.load_state_dict(backbone.vit.state_dict(), strict=False)
    stock.head_dist.load_state_dict(stock.head.state_dict())
    nn.init.normal_(stock.head.bias)
    model = model_of(backbone, Method("none"), Method("none"))
    images = images_for(backbone)
    with torch.inference_mode():
        x, features = stock.forward_features(images), model.features(images)
        torch.testing.assert_close(features, (x[:, 0] + x[:, 1]) / 2)
        averaged = F.linear(features, stock.head.weight, (stock.head.bias + stock.head_dist.bias) / 2)
        torch.testing.assert_close(stock(images), averaged)


@pytest.mark.parametrize("adapter", [Method("none"), Method("vpt-deep", {"prompts": 2})], ids=str)
@pytest.mark.parametrize("family", ["mean of ViT", "mean of DINOv2", "no class token"])
def test_mean_pooling_weighs_tokens_by_the_patches_that_they_stand_for(family: str, adapter: Method) -> None:
    """Prompts stand for none."""
    backbone = backbone_of(family)
    vit: Any = backbone.vit
    model = model_of(backbone, adapter, Method("bdm", {"block": 0, "dim": 8}))
    first = vit.num_prefix_tokens + model.adapter.num_prompts
    images = images_for(backbone)
    with torch.inference_mode():
        x, size = model.tokens(images)
        assert size is not None
        x, size = x[:, first:], size[:, first:]
        expected = vit.fc_norm((x * size).sum(1) / size.sum(1))
        torch.testing.assert_close(model.features(images), expected)


def test_a_wide_backbone_from_training_to_an_answer_over_http(tmp_path: Path) -> None:
    backbone = backbone_of("wide")
    path, tasks = tmp_path / "wide.safetensors", tmp_path / "tasks"
    save_backbone(path, backbone)
    fast = ["--epochs", "1", "--warmup-epochs", "0", "--batch-size", "100", "--adapter", "repadapter"]
    methods = ["--adapter-arguments", "dim=4", "--reducer", "bdm", "--reducer-arguments", "block=1,dim=8"]
    where = ["--backbone", str(path), "--output", str(tasks / "digits.safetensors")]
    assert main(["train", "--data", "digits", "--name", "digits", *where, *fast, *methods]) == 0
    task = Task.load(tasks / "digits.safetensors")
    assert task.header.preprocessing.size == (16, 32)
    model, preprocessing = task.build(load_backbone(path)), task.header.preprocessing
    pixels = preprocessing.resize(to_rgb(scene()))
    with torch.inference_mode():
        [expected] = model(preprocessing.normalize(pixels[None], torch.float32)).tolist()
    settings = Settings(
        backbone=path, tasks=tasks, device="cpu", dtype="float32", log_level="warning", threads=1, max_batch=2,
        calibration_repeats=0, shutdown_delay=0,
    )  # fmt: skip
    with serving(settings) as service:
        answer = service.classify(encode(scene()), outputs="logits").json()
    assert answer["logits"][0] == pytest.approx(expected, abs=1e-4)
    assert answer["tokens"] == {"in": 9, "out": 5}
