"""What torch makes by default is no matter of ours: weights and what images are normalised with are float32."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from small import small_backbone, small_header

from fpet.backbone import create_backbone
from fpet.preprocess import Preprocessing
from fpet.task import new_model


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


def test_images_are_normalised_alike(by_default: torch.dtype) -> None:
    mean = 0.1 + 0.2 * torch.finfo(by_default).eps, 0.2, 0.3  # in use nowhere else: what is computed is kept
    images = torch.full((1, 3, 1, 1), 100, dtype=torch.uint8)
    found = Preprocessing((1, 1), mean, mean).normalize(images, torch.float32)
    each = torch.tensor(mean, dtype=torch.float32)
    expected = (torch.tensor(100 / 255, dtype=torch.float32) - each) / each
    torch.testing.assert_close(found.flatten(), expected, rtol=1e-6, atol=0)
