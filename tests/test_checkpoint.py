"""A checkpoint is that of its run, whole, and nothing but data; else training does not go on from it."""

from __future__ import annotations

import dataclasses
import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from small import small_header

from fpet.backbone import Backbone
from fpet.data import Dataset, Split
from fpet.errors import TaskError
from fpet.header import Method
from fpet.training.checkpoint import RunState
from fpet.training.recipe import Recipe
from fpet.training.run import Run
from fpet.training.train import train

pytestmark = pytest.mark.usefixtures("one_thread")

RECIPE = Recipe(epochs=4, batch_size=16, lr=1e-2, warmup_epochs=1, validate_every=2)


def test_a_checkpoint_of_another_run_is_refused(backbone: Backbone, digits: Dataset, tmp_path: Path) -> None:
    header = small_header(backbone)
    path = tmp_path / "run.checkpoint"
    train(header, backbone, digits, RECIPE, path)
    scaled = small_header(backbone, Method("adaptformer", {"dim": 4, "scale": 0.1}))
    letters = tuple("abcdefghij")
    renamed, lettered = (dataclasses.replace(one, labels=letters) for one in (header, digits))
    changed = dataclasses.replace(RECIPE, epochs=5, seed=3, precision="bfloat16", lr=0.5)
    swapped = dataclasses.replace(digits, train=digits.test)
    three = 'recipe.epochs was 4, is 5, recipe.lr was 0.01, is 0.5, recipe.precision was "float32", is "bfloat16"'
    others = [
        (header, digits, dataclasses.replace(RECIPE, seed=3), "recipe.seed was 0, is 3"),
        (header, digits, dataclasses.replace(RECIPE, hflip=0.5), "recipe.hflip was not given, is 0.5"),
        (header, digits, changed, f"{three}, and 1 more"),
        (header, swapped, RECIPE, "the training or validation images are others"),
        (scaled, digits, RECIPE, "task.adapter.arguments.scale was not given, is 0.1"),
        (renamed, lettered, RECIPE, "task.labels is another"),
    ]
    for other_header, data, recipe, difference in others:
        with pytest.raises(TaskError) as error:
            train(other_header, backbone, data, recipe, path)
        message = f"{path}: the checkpoint is of another run ({difference}); delete it, or write to another file"
        assert str(error.value) == message
    with pytest.raises(TaskError, match=r"of another run \(it does not say of which\)"):
        RunState.load(path, "no JSON")


def test_a_run_is_the_same_however_its_numbers_are_written(backbone: Backbone, digits: Dataset, tmp_path: Path) -> None:
    header = small_header(backbone, Method("adaptformer", {"dim": 4, "scale": 1}))
    recipe = dataclasses.replace(RECIPE, epochs=2, weight_decay=0)
    train(header, backbone, digits, recipe, tmp_path / "run.checkpoint")
    written = small_header(backbone, Method("adaptformer", {"scale": 1.0, "dim": 4}))
    again = Run(written, backbone, digits, dataclasses.replace(recipe, weight_decay=0.0))
    assert RunState.load(tmp_path / "run.checkpoint", again.identity).epoch == 2


@pytest.mark.parametrize(
    ("run", "difference"),
    [
        (json.dumps({"a": "x" * 38}), f'a was "{"x" * 38}", is 1'),
        (json.dumps({"a": "x" * 39}), "a is another"),
        (3, "it does not say of which"),
        ("[" * 100_000, "it does not say of which"),
    ],
    ids=["short", "long", "number", "nested"],
)
def test_whatever_run_a_checkpoint_names_it_is_another(run: Any, difference: str, tmp_path: Path) -> None:
    RunState(run, 1, {}, {}).save(tmp_path / "run.checkpoint")
    with pytest.raises(TaskError, match=rf"of another run \({difference}\)"):
        RunState.load(tmp_path / "run.checkpoint", json.dumps({"a": 1}))


def test_a_damaged_checkpoint_is_refused(backbone: Backbone, digits: Dataset, tmp_path: Path) -> None:
    path = tmp_path / "run.checkpoint"
    header = small_header(backbone)
    train(header, backbone, digits, dataclasses.replace(RECIPE, epochs=1), path)
    whole = path.read_bytes()
    torch.save({"epoch": 1}, tmp_path / "other")
    for damaged in (whole[: len(whole) // 2], b"", b"text", (tmp_path / "other").read_bytes()):
        path.write_bytes(damaged)
        with pytest.raises(TaskError, match=r"run\.checkpoint: not a complete checkpoint"):
            train(header, backbone, digits, RECIPE, path)


class Trap:
    """Its pickle removes a file when it is loaded."""

    def __init__(self, victim: Path) -> None:
        self.victim = victim

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.remove, (str(self.victim),)


def test_a_checkpoint_cannot_run_code(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.touch()
    torch.save({"epoch": Trap(victim)}, tmp_path / "zip.checkpoint")
    (tmp_path / "plain.checkpoint").write_bytes(pickle.dumps(Trap(victim), protocol=2))
    for path in tmp_path.glob("*.checkpoint"):
        with pytest.raises(TaskError, match="not a complete checkpoint"):
            RunState.load(path, "")
    assert victim.exists()


@pytest.mark.parametrize("split", ["train", "val"])
@pytest.mark.parametrize("part", ["images", "targets"])
def test_a_run_is_that_of_its_pictures_and_their_labels(
    split: str, part: str, backbone: Backbone, digits: Dataset
) -> None:
    before: Split = getattr(digits, split)
    parts: dict[str, Any] = {"images": before.images, "targets": before.targets}
    if part == "images":
        parts[part] = [before.images[i - 1] for i in range(len(before.images))]
    else:
        parts[part] = before.targets.roll(1)
    other = dataclasses.replace(digits, **{split: Split(**parts)})
    with torch.random.fork_rng(devices=[]):
        runs = [Run(small_header(backbone), backbone, data, RECIPE) for data in (digits, other)]
    assert runs[0].identity != runs[1].identity


def test_a_checkpoint_takes_the_place_of_the_last_one_whole(tmp_path: Path) -> None:
    path, reader = tmp_path / "run.checkpoint", tmp_path / "reader"
    RunState("{}", 1, {}, {}).save(path)
    before = path.read_bytes()
    os.link(path, reader)  # the last one stays as it is, under whatever name
    RunState("{}", 2, {}, {}).save(path)
    assert reader.read_bytes() == before != path.read_bytes()
    assert RunState.load(path, "{}").epoch == 2
