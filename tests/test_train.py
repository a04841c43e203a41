"""Training: the paper's schedule, nothing but the task learns, and a broken run ends like an unbroken one."""

from __future__ import annotations

import csv
import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from small import METHODS, small_header
from torch import Tensor

from fpet.backbone import Backbone
from fpet.backbone_files.described import fingerprint
from fpet.data import Dataset, Split, load_dataset
from fpet.data.split import ImageTensor
from fpet.errors import DataError, TaskError
from fpet.header import Method
from fpet.task import Task, new_model, save_task
from fpet.training.checkpoint import RunState
from fpet.training.recipe import Recipe
from fpet.training.run import Run, Trained
from fpet.training.train import train

pytestmark = pytest.mark.usefixtures("one_thread")

RECIPE = Recipe(epochs=4, batch_size=16, lr=1e-2, warmup_epochs=1, validate_every=2)


def zeros_and_ones(digits: Dataset) -> Dataset:
    """A task that even a random backbone can learn."""

    def first(split: Split, count: int) -> Split:
        index = (split.targets < 2).nonzero()[:count, 0]
        pixels = torch.stack([split.images[i][0] for i in index.tolist()])
        return Split(ImageTensor(pixels), split.targets[index])

    train, val, test = first(digits.train, 96), first(digits.val, 40), first(digits.test, 40)
    return dataclasses.replace(digits, labels=("0", "1"), train=train, val=val, test=test)


def weights(trained: Trained) -> dict[str, Tensor]:
    return trained.model.trainable().state_dict()


def assert_equal(first: dict[str, Tensor], second: dict[str, Tensor]) -> None:
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert torch.equal(value, second[name]), name


def rows(path: Path) -> list[dict[str, str]]:
    """The log without its times."""
    with path.open() as file:
        return [{name: value for name, value in row.items() if name != "seconds"} for row in csv.DictReader(file)]


def test_the_schedule_is_the_papers() -> None:
    recipe = Recipe()
    published = {0: 1e-6, 1: 1e-6, 2: 1.009e-4, 5: 4.006e-4, 10: 9.001e-4, 11: 9.758e-4, 12: 9.707e-4}
    published |= {50: 5.2e-4, 98: 1.22e-5, 99: 1.10e-5}
    for epoch, lr in published.items():
        assert recipe.learning_rate(epoch) == pytest.approx(lr, rel=5e-3), epoch
    assert max(recipe.learning_rate(epoch) for epoch in range(100)) < recipe.lr


def test_the_recipe_is_the_papers() -> None:
    recipe = Recipe()
    assert (recipe.epochs, recipe.batch_size, recipe.lr, recipe.weight_decay) == (100, 64, 1e-3, 1e-4)
    assert (recipe.drop_path, recipe.precision) == (0.1, "float32")
    assert (recipe.hflip, recipe.crop_scale, recipe.class_weights) == (0, 1, "none")
    assert (recipe.validate_every, recipe.seed) == (5, 0)  # the authors validate half as often


@pytest.mark.parametrize(("epochs", "warm_up"), [(100, 10), (300, 10), (30, 3), (20, 2), (19, 0), (1, 0)])
def test_a_warm_up_goes_with_the_epochs_unless_it_is_given(epochs: int, warm_up: int) -> None:
    assert Recipe(epochs=epochs).warmup == warm_up
    assert Recipe(epochs=epochs).numbers()["warmup_epochs"] == warm_up
    assert dataclasses.replace(Recipe(epochs=100), epochs=epochs).warmup == warm_up
    assert Recipe(epochs=epochs, warmup_epochs=7).warmup == 7


def test_the_last_epoch_is_validated_whatever_the_others_are() -> None:
    recipe = Recipe(epochs=7, validate_every=3)
    assert [epoch for epoch in range(7) if recipe.validates_after(epoch)] == [2, 5, 6]


@pytest.mark.parametrize(
    "wrong",
    [
        *({"epochs": 0}, {"lr": 0.0}, {"seed": -1}, {"drop_path": 1.0}, {"precision": "float8"}, {"lr": math.nan}),
        *({name: value} for name in ("lr", "min_lr", "warmup_lr", "weight_decay") for value in (math.inf, 10**400)),
        *({name: 1.5} for name in ("epochs", "batch_size", "warmup_epochs", "validate_every", "seed")),
        *({name: 2**63} for name in ("epochs", "batch_size", "warmup_epochs", "validate_every", "seed")),
        *({name: 0} for name in ("batch_size", "validate_every")),
        *({name: -1} for name in ("min_lr", "warmup_epochs", "warmup_lr", "weight_decay", "drop_path")),
        {"seed": True},
        *({"hflip": value} for value in (-0.1, 1.1, math.nan)),
        *({"crop_scale": value} for value in (0, 1.1, -1, math.nan)),
        *(
            {name: wrong}
            for name in ("lr", "drop_path", "hflip", "precision", "class_weights")
            for wrong in ("0.1", True, [])
        ),
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_numbers_out_of_range_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        dataclasses.replace(RECIPE, **wrong)  # type: ignore[arg-type]


def test_numbers_at_the_ends_of_their_range_are_taken() -> None:
    nothing = dict.fromkeys(("min_lr", "warmup_epochs", "warmup_lr", "weight_decay", "drop_path", "hflip", "seed"), 0)
    assert dataclasses.asdict(Recipe(**nothing)).items() >= nothing.items()
    assert Recipe(hflip=1, crop_scale=1e-9).hflip == 1
    assert Recipe(seed=2**63 - 1).seed == 2**63 - 1


@pytest.mark.parametrize(("adapter", "reducer"), METHODS, ids=lambda method: method.kind)
def test_only_the_task_learns(
    adapter: Method, reducer: Method, backbone: Backbone, digits: Dataset, tmp_path: Path
) -> None:
    header = small_header(backbone, adapter, reducer)
    recipe = dataclasses.replace(RECIPE, epochs=2)
    torch.manual_seed(recipe.seed)
    start = new_model(header, backbone).trainable().state_dict()
    trained = train(header, backbone, digits, recipe, tmp_path / "run.checkpoint")
    assert fingerprint(backbone.vit) == backbone.fingerprint
    assert all(parameter.grad is None for parameter in backbone.vit.parameters())
    assert not trained.model.training
    for name, value in weights(trained).items():
        assert not torch.equal(value, start[name]), name


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_training_learns(precision: str, backbone: Backbone, tmp_path: Path) -> None:
    data = zeros_and_ones(load_dataset("digits"))
    header = dataclasses.replace(small_header(backbone), labels=data.labels)
    recipe = dataclasses.replace(RECIPE, epochs=30, lr=3e-2, validate_every=10, precision=precision)
    trained = train(header, backbone, data, recipe, tmp_path / "run.checkpoint")
    log = rows(tmp_path / "run.csv")
    assert [row["epoch"] for row in log if row["val_accuracy"]] == ["10", "20", "30"]
    assert trained.accuracy == max(float(row["val_accuracy"]) for row in log if row["val_accuracy"])
    assert trained.accuracy > 0.75
    assert float(log[-1]["loss"]) < 0.8 * float(log[0]["loss"])
    assert {value.dtype for value in weights(trained).values()} == {torch.float32}


def test_a_run_depends_on_its_seed_alone(backbone: Backbone, digits: Dataset, tmp_path: Path) -> None:
    header = small_header(backbone)
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = weights(train(header, backbone, digits, RECIPE, tmp_path / "first.checkpoint"))
    assert torch.equal(torch.get_rng_state(), before)
    other = dataclasses.replace(RECIPE, seed=1)
    differs = weights(train(header, backbone, digits, other, tmp_path / "other.checkpoint"))
    torch.manual_seed(2)
    assert_equal(first, weights(train(header, backbone, digits, RECIPE, tmp_path / "again.checkpoint")))
    assert not torch.equal(first["head.weight"], differs["head.weight"])


@pytest.mark.parametrize(
    ("bits", "asked"),
    [(32, {}), (1, {}), (32, {"hflip": 0.5, "crop_scale": 0.5, "class_weights": "balanced"})],
    ids=["", "1 bit", "views and weights"],
)
def test_a_broken_run_ends_like_an_unbroken_one(
    bits: int, asked: dict[str, Any], backbone: Backbone, digits: Dataset, tmp_path: Path
) -> None:
    header, recipe = (
        small_header(backbone, Method("lora", {"dim": 4, "bits": bits})),
        dataclasses.replace(RECIPE, **asked),
    )
    whole = train(header, backbone, digits, recipe, tmp_path / "whole.checkpoint")
    with torch.random.fork_rng(devices=[]):
        run = Run(header, backbone, digits, recipe)
        for _ in range(3):
            run.advance(lambda: None)
            run.state().save(tmp_path / "broken.checkpoint")
        run.advance(lambda: None)  # ... and is killed before it can save
    resumed = train(header, backbone, digits, recipe, tmp_path / "broken.checkpoint")
    assert_equal(weights(whole), weights(resumed))
    assert (whole.epoch, whole.accuracy, whole.loss) == (resumed.epoch, resumed.accuracy, resumed.loss)
    assert rows(tmp_path / "whole.csv") == rows(tmp_path / "broken.csv")
    last = [RunState.load(tmp_path / f"{name}.checkpoint", run.identity) for name in ("whole", "broken")]
    assert_equal(last[0].weights, last[1].weights)
    states = [checkpoint.optimizer["state"] for checkpoint in last]
    for key in states[0]:
        assert_equal(states[0][key], states[1][key])


def test_the_log_is_whole_even_if_the_last_row_could_not_be_written(
    backbone: Backbone, digits: Dataset, tmp_path: Path
) -> None:
    header = small_header(backbone)
    train(header, backbone, digits, RECIPE, tmp_path / "whole.checkpoint")
    log = tmp_path / "broken.csv"
    with torch.random.fork_rng(devices=[]):
        run = Run(header, backbone, digits, RECIPE)
        for _ in range(3):
            run.advance(lambda: None)
        run.state().save(tmp_path / "broken.checkpoint")
        log.unlink()
        log.mkdir()  # no file can take its place
        run.advance(lambda: None)
        with pytest.raises(TaskError, match=r"broken\.csv"):
            run.state().save(tmp_path / "broken.checkpoint")
    log.rmdir()
    train(header, backbone, digits, RECIPE, tmp_path / "broken.checkpoint")
    assert rows(log) == rows(tmp_path / "whole.csv")


@pytest.mark.parametrize("saved", [0, 3])
def test_a_log_that_is_ahead_of_its_checkpoint_is_no_harm(
    saved: int, backbone: Backbone, digits: Dataset, tmp_path: Path
) -> None:
    header = small_header(backbone)
    whole = train(header, backbone, digits, RECIPE, tmp_path / "whole.checkpoint")
    with torch.random.fork_rng(devices=[]):
        run = Run(header, backbone, digits, RECIPE)
        for _ in range(saved):
            run.advance(lambda: None)
            run.state().save(tmp_path / "broken.checkpoint")
        run.advance(lambda: None)
        run.state().save(tmp_path / "ahead.checkpoint")
    (tmp_path / "ahead.csv").replace(tmp_path / "broken.csv")  # killed before the checkpoint of that epoch
    resumed = train(header, backbone, digits, RECIPE, tmp_path / "broken.checkpoint")
    assert_equal(weights(whole), weights(resumed))
    assert rows(tmp_path / "broken.csv") == rows(tmp_path / "whole.csv")


def test_a_finished_run_is_not_repeated(backbone: Backbone, digits: Dataset, tmp_path: Path) -> None:
    path = tmp_path / "run.checkpoint"
    first = train(small_header(backbone), backbone, digits, RECIPE, path)
    content = path.read_bytes()
    again = train(small_header(backbone), backbone, digits, RECIPE, path)
    assert path.read_bytes() == content
    assert_equal(weights(first), weights(again))


class Unseen:
    """Images that must not be looked at."""

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int, /) -> Tensor:
        raise DataError(f"image {index} was read")


def test_test_images_are_never_read(backbone: Backbone, digits: Dataset, tmp_path: Path) -> None:
    blind = dataclasses.replace(digits, test=Split(Unseen(), torch.zeros(10, dtype=torch.int64)))
    recipe = dataclasses.replace(RECIPE, epochs=1)
    train(small_header(backbone), backbone, blind, recipe, tmp_path / "run.checkpoint")


def test_fewer_images_than_a_batch_are_refused(backbone: Backbone, digits: Dataset, tmp_path: Path) -> None:
    recipe = dataclasses.replace(RECIPE, batch_size=81)
    with pytest.raises(DataError, match="80 training images, fewer than one batch"):
        train(small_header(backbone), backbone, digits, recipe, tmp_path / "run.checkpoint")


def test_the_largest_seed_leaves_room_for_those_of_the_epochs(backbone: Backbone, digits: Dataset) -> None:
    recipe = dataclasses.replace(RECIPE, epochs=1, seed=2**63 - 1)
    with torch.random.fork_rng(devices=[]):
        Run(small_header(backbone), backbone, digits, recipe).advance(lambda: None)
        assert torch.initial_seed() > recipe.seed


def test_a_diverging_run_stops(backbone: Backbone, digits: Dataset, tmp_path: Path) -> None:
    recipe = dataclasses.replace(RECIPE, lr=1e38, warmup_epochs=0)
    with pytest.raises(TaskError, match="training diverged: the loss of epoch"):
        train(small_header(backbone), backbone, digits, recipe, tmp_path / "run.checkpoint")
    last_step = dataclasses.replace(recipe, epochs=1, batch_size=80)  # after it no training loss is looked at
    with pytest.raises(TaskError, match="training diverged: the validation loss of epoch 1 is"):
        train(small_header(backbone), backbone, digits, last_step, tmp_path / "last.checkpoint")


def test_the_saved_task_answers_like_the_trained_model(backbone: Backbone, digits: Dataset, tmp_path: Path) -> None:
    header = small_header(backbone, Method("adaptformer", {"dim": 4, "bits": 1}))
    trained = train(header, backbone, digits, RECIPE, tmp_path / "run.checkpoint")
    save_task(tmp_path / "digits.safetensors", header, trained.model)
    served = Task.load(tmp_path / "digits.safetensors").build(backbone)
    images = header.preprocessing.normalize(digits.val.resized(header.preprocessing).images, torch.float32)
    with torch.inference_mode():
        assert torch.equal(served(images), trained.model(images))


@pytest.mark.parametrize(("adapter", "reducer"), METHODS, ids=lambda method: method.kind)
def test_with_one_seed_adapter_and_head_begin_alike_whatever_the_reduction(
    adapter: Method, reducer: Method, backbone: Backbone
) -> None:
    begun = []
    for method in (reducer, Method("none")):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = new_model(small_header(backbone, adapter, method), backbone)
        begun.append({**model.adapter.state_dict(), **model.head.state_dict()})
    torch.testing.assert_close(*begun, rtol=0, atol=0)
