"""What torch makes by default is no matter of ours: weights and what images are normalised with are float32."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from small import ADAPTFORMER, BDM, small_backbone, small_digits, small_header

from fpet.backbone import create_backbone, load_backbone, save_backbone
from fpet.block import DropPath
from fpet.flops import macs
from fpet.preprocess import Preprocessing
from fpet.task import new_model
from fpet.training.recipe import Recipe
from fpet.training.run import Run
from fpet.visualize import figure


@pytest.fixture(params=[torch.bfloat16, torch.float64], ids=str)
def by_default(request: pytest.FixtureRequest) -> Iterator[torch.dtype]:
    torch.set_default_dtype(request.param)
    yield request.param
    torch.set_default_dtype(torch.float32)


@pytest.mark.usefixtures("by_default")
def test_a_backbone_made_or_loaded_is_float32() -> None:
    made = small_backbone()
    assert {parameter.dtype for parameter in made.vit.parameters()} == {torch.float32}
    loaded = create_backbone(made.architecture, made.arguments, made.vit.state_dict())
    assert loaded.fingerprint == made.fingerprint


@pytest.mark.usefixtures("by_default")
def test_what_a_task_adds_is_float32() -> None:
    backbone = small_backbone()
    model = new_model(small_header(backbone), backbone)
    assert {parameter.dtype for parameter in model.trainable().parameters()} == {torch.float32}
    assert model(torch.zeros(1, 3, 16, 16, dtype=torch.float32)).dtype == torch.float32


@pytest.mark.usefixtures("by_default")
def test_a_backbone_is_saved_and_counted_and_drawn(tmp_path: Path) -> None:
    backbone, path = small_backbone(), tmp_path / "backbone.safetensors"
    save_backbone(path, backbone)
    assert load_backbone(path).fingerprint == backbone.fingerprint
    assert macs(backbone, ADAPTFORMER, BDM) > 0
    header = small_header(backbone)
    images = torch.zeros(1, 3, 16, 16, dtype=torch.uint8)
    assert figure("bdm", new_model(header, backbone), images, header.preprocessing).width > 0


@pytest.mark.usefixtures("by_default")
def test_a_training_drops_and_sums_in_float32() -> None:
    backbone, recipe = small_backbone(), Recipe(epochs=1, batch_size=16)
    run = Run(small_header(backbone), backbone, small_digits(), recipe)
    assert run.model.drop_path[-1].p == torch.tensor(recipe.drop_path, dtype=torch.float32).item()
    run.advance(lambda: None)
    total = torch.tensor((run.log[0]["loss"] or 0.0) * run.steps, dtype=torch.float64)
    assert abs(total - total.bfloat16()) > 1e-4  # as a sum in bfloat16 would not be


@pytest.mark.usefixtures("by_default")
def test_the_same_branches_are_dropped() -> None:
    drop_path, x = DropPath(0.3), torch.ones(64, 1, 1, dtype=torch.float32)
    torch.manual_seed(0)
    found = drop_path(x)
    torch.set_default_dtype(torch.float32)
    torch.manual_seed(0)
    assert torch.equal(found, drop_path(x))


def test_images_are_normalised_alike(by_default: torch.dtype) -> None:
    mean = 0.1 + 0.2 * torch.finfo(by_default).eps, 0.2, 0.3  # in use nowhere else: what is computed is kept
    images = torch.full((1, 3, 1, 1), 100, dtype=torch.uint8)
    found = Preprocessing((1, 1), mean, mean).normalize(images, torch.float32)
    each = torch.tensor(mean, dtype=torch.float32)
    expected = (torch.tensor(100 / 255, dtype=torch.float32) - each) / each
    torch.testing.assert_close(found.flatten(), expected, rtol=1e-6, atol=0)
