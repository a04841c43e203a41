"""A training is what its recipe says, in whatever modes of torch the caller is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from small import small_backbone, small_header

from fpet.data import Dataset
from fpet.training.recipe import Recipe
from fpet.training.train import train

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    "mode",
    [torch.no_grad, torch.inference_mode, lambda: torch.autocast("cpu", torch.bfloat16)],
    ids=["no_grad", "inference", "autocast"],
)
def test_modes_of_the_caller_do_not_change_a_training(
    mode: Callable[[], Any], precision: str, digits: Dataset, tmp_path: Path
) -> None:
    recipe = Recipe(epochs=2, batch_size=40, lr=0.01, warmup_epochs=0, validate_every=1, precision=precision)
    plain = train(small_header(small_backbone()), small_backbone(), digits, recipe, tmp_path / "plain.checkpoint")
    with mode():
        backbone = small_backbone()
        found = train(small_header(backbone), backbone, digits, recipe, tmp_path / "inside.checkpoint")
    for name, value in plain.model.trainable().state_dict().items():
        assert torch.equal(found.model.trainable().state_dict()[name], value), name
