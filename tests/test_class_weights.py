"""Classes with few training images count as much as those with many, if that is asked."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from small import small_header
from torch.nn import functional as F

from fpet.backbone import Backbone
from fpet.data import Dataset, ImageTensor, Split
from fpet.header import Method
from fpet.training.class_weights import balanced_weights, cross_entropy
from fpet.training.recipe import Recipe
from fpet.training.run import Run

pytestmark = pytest.mark.usefixtures("one_thread")

# At such a rate no step changes a weight.
STILL = Recipe(epochs=1, batch_size=40, lr=1e-30, min_lr=0, warmup_epochs=0, drop_path=0)
BALANCED = dataclasses.replace(STILL, class_weights="balanced")


def test_weights_of_all_images_have_mean_one_and_those_of_each_class_the_same_sum() -> None:
    targets = torch.tensor([0, 0, 0, 0, 0, 1, 1, 3])
    weights = balanced_weights(targets, 5)
    assert weights.dtype == torch.float32
    assert weights[[2, 4]].tolist() == [0, 0]
    assert float(weights[targets].mean()) == pytest.approx(1)
    sums = torch.bincount(targets, weights[targets], minlength=5)
    torch.testing.assert_close(sums[[0, 1, 3]], torch.full((3,), 8 / 3), check_dtype=False)


def test_the_loss_is_that_of_a_set_with_as_many_images_of_each_class() -> None:
    logits = torch.randn(3, 2, generator=torch.Generator().manual_seed(0))
    targets = torch.tensor([0, 0, 1])
    found = cross_entropy(logits, targets, balanced_weights(targets, 2))
    even = [0, 1, 2, 2]
    torch.testing.assert_close(found, F.cross_entropy(logits[even], targets[even]))


def test_the_mean_over_two_processes_is_that_of_their_batch() -> None:
    logits = torch.randn(8, 3, generator=torch.Generator().manual_seed(0))
    targets = torch.tensor([0, 0, 0, 0, 0, 1, 2, 2])
    weights = balanced_weights(targets, 3)
    halves = [cross_entropy(logits[half], targets[half], weights) for half in (slice(4), slice(4, 8))]
    torch.testing.assert_close(torch.stack(halves).mean(), cross_entropy(logits, targets, weights))


def test_a_run_weights_its_losses_and_chooses_by_the_mean_of_the_classes(backbone: Backbone, digits: Dataset) -> None:
    """Most training and validation images are of one class."""
    common = digits.train.targets == 1
    assert 0 < common.sum() < 40
    train = _of(digits, "train", torch.cat([common.nonzero()[:, 0].repeat(9), (~common).nonzero()[:, 0]])[:40])
    val = _of(digits, "val", torch.cat([(digits.val.targets == 1).nonzero()[:, 0].repeat(9), torch.arange(20)]))
    header = small_header(backbone, Method("lora", {"dropout": 0.0}), Method("none"))
    logs = []
    for recipe in (STILL, BALANCED):
        with torch.random.fork_rng(devices=[]):
            run = Run(header, backbone, dataclasses.replace(digits, train=train, val=val), recipe)
            run.advance(lambda: None)
        logs.append(run.log[0])
    weights = balanced_weights(train.targets, 10)
    with torch.no_grad():
        for split, name in ((run.data, "loss"), (run.val, "val_loss")):
            logits = run.model(header.preprocessing.normalize(split.images, torch.float32))
            losses = F.cross_entropy(logits, split.targets, reduction="none")
            assert logs[0][name] == pytest.approx(float(losses.mean()), rel=1e-5)
            assert logs[1][name] == pytest.approx(float((losses * weights[split.targets]).mean()), rel=1e-5)
    right = logits.argmax(dim=1) == val.targets
    classes = [right[val.targets == label].double().mean() for label in val.targets.unique()]
    assert logs[0]["val_accuracy"] == pytest.approx(float(right.double().mean()))
    assert logs[1]["val_accuracy"] == pytest.approx(float(torch.stack(classes).mean()))
    assert logs[0]["val_accuracy"] != logs[1]["val_accuracy"]


def _of(digits: Dataset, name: str, indices: torch.Tensor) -> Split:
    split = getattr(digits, name)
    return Split(ImageTensor(torch.stack([split.images[i] for i in indices.tolist()])), split.targets[indices])
