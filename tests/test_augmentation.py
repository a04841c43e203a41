"""Views of training images: mirrored and cropped as asked, by torch's random numbers, and only in training."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from small import small_header
from torch import Tensor
from torch.nn import functional as F

from fpet.backbone import Backbone
from fpet.data import Dataset
from fpet.header import Method
from fpet.training.augmentation import augmented, random_boxes, resized_crops
from fpet.training.recipe import Recipe
from fpet.training.run import Run

pytestmark = pytest.mark.usefixtures("one_thread")

IMAGES = torch.randint(0, 256, (6, 3, 12, 20), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
# Whatever is drawn, such a run changes no weight.
STILL = Recipe(epochs=1, batch_size=80, lr=1e-30, min_lr=0, warmup_epochs=0, drop_path=0)


def drawn(hflip: float, crop_scale: float, seed: int = 0) -> Tensor:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return augmented(IMAGES, hflip=hflip, crop_scale=crop_scale)


def test_an_image_is_mirrored_or_stays() -> None:
    assert torch.equal(drawn(1, 1), IMAGES.flip(3))
    kinds = set()
    for view, image in zip(drawn(0.5, 1), IMAGES, strict=True):
        mirrored = torch.equal(view, image.flip(2))
        assert mirrored or torch.equal(view, image)
        kinds.add(mirrored)
    assert kinds == {True, False}


def test_so_many_are_mirrored_as_asked() -> None:
    lines = torch.tensor([0, 1], dtype=torch.uint8).expand(10_000, 3, 1, 2)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        views = augmented(lines, hflip=0.2, crop_scale=1)
    assert views[:, 0, 0, 0].float().mean() == pytest.approx(0.2, abs=0.02)  # five standard errors


def test_without_augmentation_nothing_is_drawn_nor_changed() -> None:
    with torch.random.fork_rng(devices=[]):
        before = torch.get_rng_state()
        assert augmented(IMAGES, hflip=0, crop_scale=1) is IMAGES
        assert torch.equal(torch.get_rng_state(), before)


def test_the_box_of_all_is_the_image() -> None:
    assert torch.equal(resized_crops(IMAGES, torch.zeros(6, 2), torch.ones(6, 2)), IMAGES)


def test_a_box_is_enlarged_as_torch_enlarges_it() -> None:
    corner, size = torch.tensor([[1 / 4, 1 / 5]]).expand(6, 2), torch.tensor([[1 / 2, 3 / 5]]).expand(6, 2)
    box = IMAGES[:, :, 3:9, 4:16].float()
    expected = F.interpolate(box, size=(12, 20), mode="bilinear", align_corners=False)
    inside = slice(None), slice(None), slice(1, -1), slice(1, -1)  # at its borders a box has the pixels beyond
    views = resized_crops(IMAGES, corner, size)
    torch.testing.assert_close(views[inside].float(), expected[inside], rtol=0, atol=0.501)
    assert views.dtype == torch.uint8


def test_a_white_image_stays_white() -> None:
    """Beyond the border of an image nothing is seen."""
    white = torch.full((200, 3, 12, 20), 255, dtype=torch.uint8)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        assert torch.equal(augmented(white, hflip=0.5, crop_scale=0.05), white)


@pytest.mark.parametrize("shape", [(16, 16), (12, 20)])
def test_boxes_lie_in_the_image_with_areas_and_shapes_of_inception(shape: tuple[int, int]) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        corner, size = random_boxes(torch.zeros(1, 3, *shape).expand(20_000, -1, -1, -1), 0.2)
    assert corner.min() >= 0
    assert (corner + size).max() <= 1 + 1e-6
    areas = size.prod(dim=1)
    quantiles = areas.quantile(torch.tensor([0, 0.25, 0.5, 0.75, 1]))
    torch.testing.assert_close(quantiles, torch.tensor([0.2, 0.4, 0.6, 0.8, 1]), rtol=0, atol=0.02)
    free = areas < 0.4  # where every shape fits
    shapes = (size[free, 1] * shape[1] / (size[free, 0] * shape[0])).log()
    most = torch.tensor(4 / 3).log()
    assert shapes.abs().max() <= most + 1e-6
    quartiles = shapes.quantile(torch.tensor([0.25, 0.5, 0.75]))
    torch.testing.assert_close(quartiles, most * torch.tensor([-0.5, 0, 0.5]), rtol=0, atol=0.02)
    places = (corner / (1 - size))[free].quantile(torch.tensor([0, 0.25, 0.5, 0.75, 1]), dim=0)
    torch.testing.assert_close(places[:, 0], torch.linspace(0, 1, 5), rtol=0, atol=0.02)
    torch.testing.assert_close(places[:, 1], torch.linspace(0, 1, 5), rtol=0, atol=0.02)


def test_views_are_those_of_the_seed() -> None:
    assert torch.equal(drawn(0.5, 0.3), drawn(0.5, 0.3))
    assert not torch.equal(drawn(0.5, 0.3), drawn(0.5, 0.3, seed=1))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64], ids=str)
def test_views_are_the_same_whatever_torch_makes_by_default(dtype: torch.dtype) -> None:
    expected = drawn(0.5, 0.3)
    torch.set_default_dtype(dtype)
    try:
        found = drawn(0.5, 0.3)
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.equal(found, expected)


def test_images_are_other_views_in_training_and_themselves_in_validation(backbone: Backbone, digits: Dataset) -> None:
    header = small_header(backbone, Method("lora", {"dropout": 0.0}), Method("none"))
    logs = []
    for recipe in (STILL, dataclasses.replace(STILL, hflip=1), dataclasses.replace(STILL, crop_scale=0.3)):
        with torch.random.fork_rng(devices=[]):
            run = Run(header, backbone, digits, recipe)
            run.advance(lambda: None)
        logs.append(run.log[0])
    mirrored = run.data.images.flip(3)
    with torch.no_grad():
        logits = run.model.train()(header.preprocessing.normalize(mirrored, torch.float32))
    losses = [log["loss"] for log in logs]
    assert losses[1] == pytest.approx(float(F.cross_entropy(logits, run.data.targets)), rel=1e-5)
    assert len(set(losses)) == 3
    assert len({log["val_loss"] for log in logs}) == 1


def test_a_run_without_what_came_later_is_the_one_that_it_was_before() -> None:
    off = {"hflip", "crop_scale", "class_weights"}
    assert Recipe().identity().keys() == Recipe().numbers().keys() - off
    assert Recipe(hflip=0, crop_scale=1, class_weights="none").identity() == Recipe().identity()
    later = {"hflip": 0.5, "crop_scale": 0.3, "class_weights": "balanced"}
    on = Recipe(**later)
    assert on.identity() == on.numbers() == Recipe().identity() | later
