"""A run trains at the rates of its recipe, measures every validation image alike, and keeps its best epoch."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from small import ARCHITECTURE, ARGUMENTS, BDM, IN_ALL_BLOCKS, small_backbone, small_header
from torch import Tensor
from torch.nn import functional as F

from fpet.adapters import ADAPTERS
from fpet.backbone import Backbone, create_backbone
from fpet.data import Dataset, Split
from fpet.errors import DataError, TaskError, UnsupportedError
from fpet.header import Method
from fpet.reducers import REDUCERS
from fpet.task import new_model, save_task
from fpet.training.checkpoint import RunState
from fpet.training.parallel import Processes
from fpet.training.recipe import Recipe
from fpet.training.run import Run

pytestmark = pytest.mark.usefixtures("one_thread")

STILL_BDM = Method("bdm", {**BDM.arguments, "dropout": 0.0})
RECIPE = Recipe(epochs=8, batch_size=16, lr=1e-1, warmup_epochs=1, validate_every=1)


def followed(run: Run, path: Path) -> tuple[list[dict[str, Tensor]], list[tuple[float, float]]]:
    """The weights and the scores, the better the larger, of each epoch of a run, which is stored as it goes."""
    weights = []
    for _ in range(RECIPE.epochs):
        run.advance(lambda: None)
        weights.append({name: value.clone() for name, value in run.tuned.state_dict().items()})
        run.state().save(path)
    return weights, [(row["val_accuracy"] or 0.0, -(row["val_loss"] or 0.0)) for row in run.log]


def test_the_loss_decides_between_epochs_of_equal_accuracy(backbone: Backbone, digits: Dataset, tmp_path: Path) -> None:
    """So few validation images make them common. What comes after the best epoch leaves its weights alone."""
    few = dataclasses.replace(digits, val=Split([digits.val.images[i] for i in range(6)], digits.val.targets[:6]))
    path, equal, best = tmp_path / "run.checkpoint", [0], 0
    for seed in range(20):  # until the best epoch is between others as accurate: when, depends on the processor
        with torch.random.fork_rng(devices=[]):
            run = Run(small_header(backbone), backbone, few, dataclasses.replace(RECIPE, seed=seed))
            weights, scores = followed(run, path)
        best = max(range(RECIPE.epochs), key=lambda epoch: scores[epoch])
        equal = [epoch for epoch in range(RECIPE.epochs) if scores[epoch][0] == scores[best][0]]
        if equal[0] < best < equal[-1]:
            break
    assert equal[0] < best < equal[-1]
    stored = RunState.load(path, run.identity).best
    trained = run.result()
    assert stored is not None
    assert trained.epoch == stored.epoch == best + 1
    assert (trained.accuracy, -trained.loss) == scores[best]
    for name, value in trained.model.trainable().state_dict().items():
        assert torch.equal(value, weights[best][name]), name
        assert torch.equal(value, stored.weights[name]), name


@pytest.mark.parametrize("adapter", ["lora", "ssf"])  # one group of parameters, and two
def test_each_step_is_taken_at_the_rate_of_its_epoch(backbone: Backbone, digits: Dataset, adapter: str) -> None:
    rates: list[set[float]] = []
    with torch.random.fork_rng(devices=[]):
        run = Run(small_header(backbone, adapter=Method(adapter, {})), backbone, digits, RECIPE)
        groups = run.optimizer.param_groups
        run.optimizer.register_step_pre_hook(lambda *_: rates.append({group["lr"] for group in groups}))
        for _ in range(3):
            run.advance(lambda: None)
    assert rates == [{RECIPE.learning_rate(epoch)} for epoch in range(3) for _ in range(run.steps)]
    assert len(set(map(tuple, rates))) == 2  # the first two are equal


def test_stochastic_depth_is_that_of_the_recipe(backbone: Backbone, digits: Dataset) -> None:
    with torch.random.fork_rng(devices=[]):
        run = Run(small_header(backbone), backbone, digits, dataclasses.replace(RECIPE, drop_path=0.25))
    assert [each.p for each in run.model.drop_path] == [0, 0.25]


@pytest.mark.parametrize(
    ("reducer", "batch_size"), [(STILL_BDM, 16), (Method("ltmp"), 80)], ids=["mean", "with a penalty"]
)
def test_the_loss_of_an_epoch_is_that_of_its_images(
    backbone: Backbone, digits: Dataset, reducer: Method, batch_size: int
) -> None:
    """At such a rate no step changes a weight."""
    recipe = Recipe(epochs=1, batch_size=batch_size, lr=1e-30, min_lr=0, warmup_epochs=0, drop_path=0)
    header = small_header(backbone, Method("lora", {"dropout": 0.0}), reducer)
    with torch.random.fork_rng(devices=[]):
        run = Run(header, backbone, digits, recipe)
        run.advance(lambda: None)
    train = digits.train.resized(header.preprocessing)
    with torch.no_grad():
        tokens, sizes = run.model.train().encode(header.preprocessing.normalize(train.images, torch.float32))
        loss = F.cross_entropy(run.model.head(run.model.pool(tokens)), train.targets)
        penalty = run.model.reducer.penalty(sizes)
    assert run.log[0]["loss"] == pytest.approx(float(loss + penalty), rel=1e-5)
    assert (penalty > 0) == (reducer.kind == "ltmp")


@pytest.mark.parametrize("adapter", sorted(ADAPTERS))
def test_weight_decay_acts_on_all_that_is_trained_but_not_on_factors_about_one(
    backbone: Backbone, digits: Dataset, adapter: str
) -> None:
    reducer = Method("none") if ADAPTERS[adapter].needs_grid else BDM
    header = small_header(backbone, adapter=Method(adapter, {}), reducer=reducer)
    with torch.random.fork_rng(devices=[]):
        run = Run(header, backbone, digits, dataclasses.replace(RECIPE, weight_decay=0.5))
    decay = {id(value): group["weight_decay"] for group in run.optimizer.param_groups for value in group["params"]}
    adapted = {id(value) for value in run.model.adapter.parameters()}
    trained = {id(value) for value in run.tuned.parameters()}
    assert decay == {value: 0.0 if adapter == "ssf" and value in adapted else 0.5 for value in trained}


@pytest.mark.parametrize("reducer", sorted(REDUCERS.keys() - {"none"}))
def test_weight_decay_draws_no_threshold_to_zero(backbone: Backbone, digits: Dataset, reducer: str) -> None:
    header = small_header(backbone, reducer=Method(reducer, IN_ALL_BLOCKS.get(reducer, {"block": 0})))
    with torch.random.fork_rng(devices=[]):
        run = Run(header, backbone, digits, dataclasses.replace(RECIPE, weight_decay=0.5))
    decay = {id(value): group["weight_decay"] for group in run.optimizer.param_groups for value in group["params"]}
    reducing = {id(value) for value in run.model.reducer.parameters()}
    assert {decay[value] for value in reducing} <= {0.0 if reducer == "ltmp" else 0.5}
    assert all(decay[value] == 0.5 for value in decay.keys() - reducing)


def test_validation_images_count_alike_whatever_batch_they_are_in(backbone: Backbone, digits: Dataset) -> None:
    header = small_header(backbone)
    with torch.random.fork_rng(devices=[]):
        run = Run(header, backbone, digits, RECIPE)
        run.advance(lambda: None)
        trained = run.result()
    val = digits.val.resized(header.preprocessing)
    assert len(val.targets) % RECIPE.batch_size > 0
    with torch.inference_mode():
        logits = trained.model(header.preprocessing.normalize(val.images, torch.float32))
    assert trained.loss == pytest.approx(float(F.cross_entropy(logits, val.targets)), rel=1e-5)
    assert trained.accuracy == pytest.approx(float((logits.argmax(dim=1) == val.targets).float().mean()))


@pytest.mark.parametrize(
    ("labels", "named"),
    [
        ("1032456789", "the classes of digits are those of the task digits in another order"),
        ("012345678", "the classes of digits are not those of the task digits: the task knows no 9"),
        ("0123456789ab", "the classes of digits are not those of the task digits: it has no a, b"),
    ],
)
def test_the_labels_are_those_of_the_data(backbone: Backbone, digits: Dataset, labels: str, named: str) -> None:
    header = dataclasses.replace(small_header(backbone), labels=tuple(labels))
    with pytest.raises(DataError, match=f"{named}$"):
        Run(header, backbone, digits, Recipe(batch_size=16))


def test_a_backbone_that_trains_is_float32(digits: Dataset) -> None:
    backbone = small_backbone()
    backbone.move("cpu", torch.bfloat16)
    with pytest.raises(UnsupportedError, match=r"the backbone is bfloat16: to train it is float32, as it was loaded"):
        Run(small_header(backbone), backbone, digits, Recipe(batch_size=16))
    for dtype in (torch.float32, torch.float16):
        with pytest.raises(UnsupportedError, match=r"were rounded to bfloat16, .* as float(32|16): load the backbone"):
            backbone.move("cpu", dtype)
    backbone.move("cpu", torch.bfloat16)
    backbone.vit.float()
    with pytest.raises(UnsupportedError, match=r"the backbone's weights were changed, .*: load it anew"):
        Run(small_header(backbone), backbone, digits, Recipe(batch_size=16))


def test_a_task_of_another_backbone_is_not_trained(digits: Dataset) -> None:
    """Which would be found only when it is saved, after the training and the test."""
    header, other = small_header(small_backbone()), create_backbone(ARCHITECTURE, ARGUMENTS)
    with pytest.raises(TaskError, match=r"^digits: the task belongs to the backbone vit_tiny_patch16_224 "):
        Run(header, other, digits, Recipe(epochs=1, warmup_epochs=0))


def test_a_task_of_a_changed_backbone_is_not_written(tmp_path: Path) -> None:
    backbone = small_backbone()
    header = small_header(backbone)
    model = new_model(header, backbone)
    with torch.no_grad():
        next(backbone.vit.parameters()).mul_(2)
    with pytest.raises(UnsupportedError, match=r"the backbone's weights were changed"):
        save_task(tmp_path / "task.safetensors", header, model)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("target", [-1, 10])
def test_targets_are_indices_into_the_labels(digits: Dataset, target: int) -> None:
    targets = digits.test.targets.clone()
    targets[3] = target
    with pytest.raises(DataError, match=rf"targets of 10 classes are 0 to 9, not {target}$"):
        dataclasses.replace(digits, test=Split(digits.test.images, targets))


@pytest.mark.parametrize("targets", [torch.zeros(3, dtype=torch.int64), torch.zeros(4), torch.zeros(4, 1).long()])
def test_a_split_has_a_target_a_picture(digits: Dataset, targets: torch.Tensor) -> None:
    four = [digits.train.images[i] for i in range(4)]
    with pytest.raises(DataError, match=r"the targets of 4 pictures are int64 \[4\], not (int64|float32) \["):
        Split(four, targets)


def test_a_run_needs_images_to_choose_the_epoch_on(backbone: Backbone, digits: Dataset) -> None:
    none = Split([], torch.zeros(0, dtype=torch.int64))
    assert len(none.resized(small_header(backbone).preprocessing)) == 0
    with pytest.raises(DataError, match="digits has no validation images"):
        Run(small_header(backbone), backbone, dataclasses.replace(digits, val=none), Recipe(batch_size=16))


def test_labels_may_be_a_list(backbone: Backbone, digits: Dataset) -> None:
    listed = dataclasses.replace(digits, labels=list(digits.labels))  # type: ignore[arg-type]
    assert Run(small_header(backbone), backbone, listed, Recipe(batch_size=16)).steps == 5


def test_each_epoch_has_an_order_of_its_own(backbone: Backbone, digits: Dataset) -> None:
    batches: list[torch.Tensor] = []

    class Watched(Processes):
        def share(self, batch: torch.Tensor) -> torch.Tensor:
            batches.append(batch)
            return batch

    with torch.random.fork_rng(devices=[]):
        run = Run(small_header(backbone), backbone, digits, RECIPE, Watched())
        for _ in range(3):
            run.advance(lambda: None)
    orders = torch.cat(batches).view(3, -1).tolist()
    assert all(sorted(order) == list(range(len(digits.train))) for order in orders)
    assert orders[0] != orders[1] != orders[2] != orders[0]


def test_processes_have_one_order_but_drop_on_their_own(backbone: Backbone, digits: Dataset) -> None:
    batches: dict[int, list[list[int]]] = {0: [], 1: []}
    seeds: dict[int, set[int]] = {0: set(), 1: set()}

    class Watched(Processes):
        def share(self, batch: torch.Tensor) -> torch.Tensor:
            batches[self.rank].append(batch.tolist())
            seeds[self.rank].add(torch.initial_seed())
            return batch

    for rank in batches:
        with torch.random.fork_rng(devices=[]):
            run = Run(small_header(backbone), backbone, digits, RECIPE, Watched(rank))
            run.advance(lambda: None)
    assert batches[0] == batches[1]
    assert len(seeds[0] | seeds[1]) == 2
