"""Images of different tasks in one forward."""

from __future__ import annotations

import dataclasses
import gc
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from small import ARCHITECTURE, ARGUMENTS, METHODS, perturb, small_backbone, small_header
from torch import Tensor

from fpet.errors import UnsupportedError
from fpet.header import BackboneRef, Method
from fpet.inference.mixed import Template, family
from fpet.inference.packed_weights import PackedWeights
from fpet.inference.task_weights import Weights
from fpet.preprocess import Preprocessing
from fpet.task import Task, new_model, save_task
from fpet.vit import AdaptedViT

pytestmark = pytest.mark.usefixtures("one_thread")
IMAGES = torch.randn((6, 3, 16, 16), generator=torch.Generator().manual_seed(0))
ORDER = (0, 1, 0, 2, 2, 1)


def mixed(models: Sequence[AdaptedViT], images: Tensor) -> Tensor:
    """Features [B, C] of images [B, 3, H, W], the i-th by the i-th model, through one template."""
    template = Template(models[0])
    weights = {model: Weights.of(model) for model in models}
    return template.features([weights[model] for model in models], images, reduced=True)


def tasks(folder: Path, adapter: Method, reducer: Method, bits: tuple[int, ...] = ()) -> list[AdaptedViT]:
    """Three models of a family, far apart, loaded from their files."""
    backbone, models = small_backbone(), []
    for seed in range(3):
        torch.manual_seed(seed)
        method = dataclasses.replace(adapter, arguments={**adapter.arguments, **({"bits": bits[seed]} if bits else {})})
        header = small_header(backbone, method, reducer)
        model = new_model(header, backbone)
        perturb(model.trainable(), 0.3)
        path = folder / f"{seed}.safetensors"
        save_task(path, header, model)
        models.append(Task.load(path).build(backbone))
    return models


@pytest.mark.parametrize(("adapter", "reducer"), METHODS, ids=str)
def test_each_image_has_the_features_of_its_own_task(adapter: Method, reducer: Method, tmp_path: Path) -> None:
    models = tasks(tmp_path, adapter, reducer)
    with torch.inference_mode():
        alone = torch.cat([models[i].features(image[None]) for i, image in zip(ORDER, IMAGES, strict=True)])
        others = torch.cat([models[i - 1].features(image[None]) for i, image in zip(ORDER, IMAGES, strict=True)])
        together = mixed([models[i] for i in ORDER], IMAGES)
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-4)
    if list(models[0].adapter.parameters()):
        assert ((alone - others).norm(dim=1) > 0.01 * alone.norm(dim=1)).all()


def test_tasks_of_different_bits_share_a_forward(tmp_path: Path) -> None:
    adapter, reducer = Method("lora", {"dim": 4}), Method("bdm", {"block": 0, "dim": 4})
    models = tasks(tmp_path, adapter, reducer, bits=(1, 32, 8))
    with torch.inference_mode():
        alone = torch.cat([models[i].features(image[None]) for i, image in zip(ORDER, IMAGES, strict=True)])
        torch.testing.assert_close(mixed([models[i] for i in ORDER], IMAGES), alone, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("adapter", "reducer"), METHODS, ids=str)
def test_the_tasks_are_not_changed(adapter: Method, reducer: Method, tmp_path: Path) -> None:
    models = tasks(tmp_path, adapter, reducer)
    before = [{name: value.clone() for name, value in model.state_dict().items()} for model in models]
    with torch.inference_mode():
        mixed(models * 2, IMAGES)
    for model, state in zip(models, before, strict=True):
        for name, value in model.state_dict().items():
            assert torch.equal(value, state[name])


@pytest.mark.parametrize(("adapter", "reducer"), METHODS, ids=str)
def test_a_task_alone_has_the_very_numbers_of_its_own_model(adapter: Method, reducer: Method, tmp_path: Path) -> None:
    models = tasks(tmp_path, adapter, reducer)
    template = Template(models[0])
    with torch.inference_mode():
        for model in models:
            weights = Weights.of(model)
            for reduced, own in ((True, model), (False, model.unreduced())):
                features = template.features([weights] * len(IMAGES), IMAGES, reduced=reduced)
                assert torch.equal(features, own.features(IMAGES))
                assert torch.equal(weights.logits(features), own(IMAGES))


@pytest.mark.parametrize(("adapter", "reducer"), METHODS, ids=str)
def test_of_a_task_nothing_is_held_but_its_numbers(adapter: Method, reducer: Method, tmp_path: Path) -> None:
    first, second, _ = tasks(tmp_path, adapter, reducer)
    template = Template(first)
    weights = Weights.of(second)
    numbers = [parameter.numel() for parameter in second.trainable().parameters()]
    assert weights.nbytes == 4 * sum(-(-number // 32) * 32 for number in numbers)
    for reduced in (True, False):
        model = template.model(weights.flat, reduced=reduced)
        places = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
        frozen = {parameter.untyped_storage().data_ptr() for parameter in model.vit.parameters()}
        assert places - frozen <= {weights.flat.untyped_storage().data_ptr()}
    gone = [weakref.ref(parameter) for parameter in first.trainable().parameters()]
    del first
    gc.collect()
    assert not any(parameter() is not None for parameter in gone)  # the template was made from that task


def test_a_weight_that_is_yet_to_be_rounded_is_refused() -> None:
    backbone = small_backbone()
    latent = new_model(small_header(backbone, Method("lora", {"bits": 1})), backbone).eval()
    with pytest.raises(UnsupportedError, match="load the tasks from their files"):
        Template(latent)
    with pytest.raises(UnsupportedError, match="load the tasks from their files"):
        Weights.of(latent)
    with pytest.raises(UnsupportedError, match="load the tasks from their files"):
        PackedWeights.of(latent, {})


@pytest.mark.parametrize(
    ("changes", "same"),
    [
        ({"name": "other", "labels": ("a", "b")}, True),
        ({"preprocessing": Preprocessing((16, 16), mean=(0.1, 0.2, 0.3))}, True),
        ({"adapter": Method("adaptformer", {"dim": 4, "bits": 1, "dropout": 0.5, "scale": 1.0})}, True),
        ({"adapter": Method("adaptformer", {"dim": 4, "scale": 1})}, True),
        ({"reducer": Method("bdm", {"block": 0, "dim": 4, "stop_gradient": False})}, True),
        ({"adapter": Method("adaptformer", {"dim": 4, "scale": 0.1})}, False),
        ({"adapter": Method("adaptformer", {"dim": 8})}, False),
        ({"adapter": Method("lora", {"dim": 4})}, False),
        ({"reducer": Method("bdm", {"block": 1, "dim": 4})}, False),
        ({"reducer": Method("none")}, False),
        ({"preprocessing": Preprocessing((32, 16))}, False),
        ({"backbone": BackboneRef(ARCHITECTURE, ARGUMENTS, "that of other weights")}, False),
        ({"backbone": BackboneRef("another of the same weights", ARGUMENTS, small_backbone().fingerprint)}, False),
        ({"backbone": BackboneRef(ARCHITECTURE, {"global_pool": "avg"}, small_backbone().fingerprint)}, False),
    ],
)
def test_a_family_is_what_can_share_a_forward(changes: dict[str, Any], same: bool) -> None:
    header = small_header(small_backbone())
    assert (family(dataclasses.replace(header, **changes)) == family(header)) is same


def test_what_ltmp_aims_at_in_training_is_none_of_its_family() -> None:
    header = small_header(small_backbone(), reducer=Method("ltmp"))
    aimed = dataclasses.replace(header, reducer=Method("ltmp", {"target": 0.5, "tau": 0.2}))
    assert family(aimed) == family(header)


def test_weights_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    models = tasks(tmp_path, Method("lora", {"dim": 4}), Method("none"))
    (wide, *_) = tasks(tmp_path, Method("lora", {"dim": 8}), Method("none"))
    template, one, other = Template(models[0]), Weights.of(models[0]), Weights.of(wide)
    for each in ([other] * 2, [one, other], [one, one._replace(flat=one.flat[:-1])]):
        with pytest.raises(UnsupportedError, match=r"of another family: they have \d+ numbers, not \d+"):
            template.features(each, IMAGES[:2])
    for each, images in (([], IMAGES[:2]), ([], IMAGES[:0]), ([one], IMAGES[:2]), ([one, one], IMAGES[:3])):
        with pytest.raises(ValueError, match=rf"there are {len(each)} for {len(images)} images"):
            template.features(each, images)


def test_a_template_leaves_the_mode_of_the_model() -> None:
    model = new_model(small_header(small_backbone(), reducer=Method("none")), small_backbone()).train()
    Template(model)
    assert all(part.training for part in model.trainable().modules())
