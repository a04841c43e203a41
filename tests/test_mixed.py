"""Images of different tasks in one forward."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from small import METHODS, perturb, small_backbone, small_header

from fpet.errors import UnsupportedError
from fpet.header import Method
from fpet.mixed import family, features
from fpet.preprocess import Preprocessing
from fpet.task import Task, new_model, save_task
from fpet.vit import AdaptedViT

pytestmark = pytest.mark.usefixtures("one_thread")
IMAGES = torch.randn((6, 3, 16, 16), generator=torch.Generator().manual_seed(0))
ORDER = (0, 1, 0, 2, 2, 1)


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
        mixed = features([models[i] for i in ORDER], IMAGES)
    torch.testing.assert_close(mixed, alone, rtol=1e-4, atol=1e-4)
    if list(models[0].adapter.parameters()):
        assert ((alone - others).norm(dim=1) > 0.01 * alone.norm(dim=1)).all()


def test_tasks_of_different_bits_share_a_forward(tmp_path: Path) -> None:
    adapter, reducer = Method("lora", {"dim": 4}), Method("bdm", {"block": 0, "dim": 4})
    models = tasks(tmp_path, adapter, reducer, bits=(1, 32, 8))
    with torch.inference_mode():
        alone = torch.cat([models[i].features(image[None]) for i, image in zip(ORDER, IMAGES, strict=True)])
        torch.testing.assert_close(features([models[i] for i in ORDER], IMAGES), alone, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("adapter", "reducer"), METHODS, ids=str)
def test_the_tasks_are_not_changed(adapter: Method, reducer: Method, tmp_path: Path) -> None:
    models = tasks(tmp_path, adapter, reducer)
    before = [{name: value.clone() for name, value in model.state_dict().items()} for model in models]
    with torch.inference_mode():
        features(models * 2, IMAGES)
    for model, state in zip(models, before, strict=True):
        for name, value in model.state_dict().items():
            assert torch.equal(value, state[name])


def test_a_weight_that_is_yet_to_be_rounded_is_refused() -> None:
    backbone = small_backbone()
    models = [new_model(small_header(backbone), backbone).eval() for _ in range(2)]
    with pytest.raises(UnsupportedError, match="load the tasks from their files"):
        features(models, IMAGES[:2])


@pytest.mark.parametrize(
    ("changes", "same"),
    [
        ({"name": "other", "labels": ("a", "b")}, True),
        ({"preprocessing": Preprocessing((16, 16), mean=(0.1, 0.2, 0.3))}, True),
        ({"adapter": Method("adaptformer", {"dim": 4, "bits": 1, "dropout": 0.5, "scale": 1.0})}, True),
        ({"adapter": Method("adaptformer", {"dim": 4, "scale": 0.1})}, False),
        ({"adapter": Method("adaptformer", {"dim": 8})}, False),
        ({"adapter": Method("lora", {"dim": 4})}, False),
        ({"reducer": Method("bdm", {"block": 1, "dim": 4})}, False),
        ({"reducer": Method("none")}, False),
        ({"preprocessing": Preprocessing((32, 16))}, False),
    ],
)
def test_a_family_is_what_can_share_a_forward(changes: dict[str, Any], same: bool) -> None:
    header = small_header(small_backbone())
    assert (family(dataclasses.replace(header, **changes)) == family(header)) is same
