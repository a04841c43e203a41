"""A training that begins with the weights of a task."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from picture_files import classes
from published_files import save_small_backbone
from serving import write_task
from small import METHODS, small_backbone, small_header

from fpet.backbone import Backbone
from fpet.cli import main
from fpet.data import Dataset
from fpet.errors import TaskError
from fpet.header import HeadSpec, Method, TaskHeader
from fpet.task import Task, save_tensors
from fpet.training.fit import evaluate_fitted, fit
from fpet.training.recipe import Recipe
from fpet.training.start import first_model, kept_parts
from fpet.training.train import train

pytestmark = pytest.mark.usefixtures("one_thread")
RECIPE = Recipe(epochs=2, batch_size=16, lr=1e-2, warmup_epochs=0, validate_every=1)


def trained(path: Path, header: TaskHeader, backbone: Backbone) -> Task:
    """A task with weights as after a training."""
    write_task(path, header, backbone, seed=7)
    return Task.load(path)


@pytest.mark.parametrize(("adapter", "reducer"), METHODS, ids=lambda method: method.kind)
def test_it_answers_first_as_the_task_does(
    adapter: Method, reducer: Method, backbone: Backbone, digits: Dataset, tmp_path: Path
) -> None:
    header = small_header(backbone, adapter, reducer)
    start = trained(tmp_path / "old.safetensors", header, backbone)
    assert kept_parts(header, start) == ("adapter", "reducer", "head")
    model = first_model(header, backbone, start, drop_path=0.1)
    assert all(value.requires_grad for value in model.trainable().parameters())
    images = header.preprocessing.normalize(digits.test.resized(header.preprocessing).images, torch.float32)
    with torch.no_grad():
        torch.testing.assert_close(model.eval()(images), start.build(backbone)(images))


@pytest.mark.parametrize(
    ("changed", "kept"),
    [
        ({"reducer": Method("none")}, ("adapter", "head")),
        ({"labels": tuple("9876543210")}, ("adapter", "reducer")),
        ({"head": HeadSpec(bits=1, bias=False), "reducer": Method("bdm", {"block": 1, "dim": 4})}, ("adapter",)),
    ],
    ids=str,
)
def test_what_differs_begins_anew(
    changed: dict[str, object], kept: tuple[str, ...], backbone: Backbone, tmp_path: Path
) -> None:
    header = small_header(backbone)
    start = trained(tmp_path / "old.safetensors", header, backbone)
    other = dataclasses.replace(header, **changed)  # type: ignore[arg-type]
    assert kept_parts(other, start) == kept
    torch.manual_seed(3)
    model = first_model(other, backbone, start).trainable()
    torch.manual_seed(3)
    fresh, begun = first_model(other, backbone, None).trainable(), start.to_train(backbone).trainable()
    for part in ("adapter", "reducer", "head"):
        expected = (begun if part in kept else fresh)[part].state_dict()
        for name, value in model[part].state_dict().items():
            assert torch.equal(value, expected[name]), name


def test_another_adapter_is_refused(backbone: Backbone, tmp_path: Path) -> None:
    header = small_header(backbone)
    start = trained(tmp_path / "old.safetensors", header, backbone)
    for adapter in (Method("lora"), Method("adaptformer", {"dim": 8})):
        with pytest.raises(TaskError, match=r"old\.safetensors: what begins with it has its adapter, adaptformer with"):
            first_model(dataclasses.replace(header, adapter=adapter), backbone, start)


def test_a_training_goes_on_from_it_and_says_so(backbone: Backbone, digits: Dataset, tmp_path: Path) -> None:
    header = small_header(backbone)
    start = trained(tmp_path / "old.safetensors", header, backbone)
    # With steps too small to change anything, what is fitted are the weights that it began with.
    still = dataclasses.replace(RECIPE, epochs=1, lr=1e-12, min_lr=1e-12)
    fitted = fit(header, backbone, digits, still, tmp_path / "still.checkpoint", start=start)
    weights = fitted.trained.model.trainable().state_dict()
    for name, value in start.to_train(backbone).trainable().state_dict().items():
        torch.testing.assert_close(weights[name], value)
    assert evaluate_fitted(fitted)[0].provenance["start"] == {"name": "digits", "digest": start.digest}


def test_a_killed_training_goes_on_with_the_same_start_alone(
    backbone: Backbone, digits: Dataset, tmp_path: Path
) -> None:
    header, checkpoint = small_header(backbone), tmp_path / "run.checkpoint"
    start = trained(tmp_path / "old.safetensors", header, backbone)
    whole = train(header, backbone, digits, RECIPE, tmp_path / "whole.checkpoint", start=start)
    train(header, backbone, digits, dataclasses.replace(RECIPE, epochs=2), checkpoint, start=start)
    again = train(header, backbone, digits, RECIPE, checkpoint, start=start)  # it is done: nothing is trained
    for name, value in whole.model.trainable().state_dict().items():
        assert torch.equal(again.model.trainable().state_dict()[name], value), name
    with pytest.raises(TaskError, match=r"of another run \(start (is another|was .* is not given)"):
        train(header, backbone, digits, RECIPE, checkpoint)


def test_the_command_begins_with_a_task(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = classes(tmp_path / "vehicles", {"bus": 20, "car": 40})
    backbone = ["--backbone", str(save_small_backbone(tmp_path / "small.safetensors"))]
    common = ["train", "--data", str(folder), *backbone, "--epochs", "2", "--batch-size", "16", "--lr", "0.01"]
    old, new = tmp_path / "old.safetensors", tmp_path / "new.safetensors"
    method = ["--adapter", "lora", "--adapter-arguments", "dim=4,bits=1", "--reducer-arguments", "block=0,dim=4"]
    assert main([*common, "--name", "old", "--output", str(old), *method, "--head-bits", "4"]) == 0
    fitted = Task.load(old)
    darker = dataclasses.replace(fitted.header.preprocessing, mean=(0.4, 0.4, 0.4))
    save_tensors(old, dataclasses.replace(fitted.header, preprocessing=darker), fitted.tensors, small_backbone())
    capsys.readouterr()
    begun = [*common, "--from", str(old), "--name", "new", "--output", str(new)]
    assert main([*begun, "--split-seed", "1"]) == 2
    assert "old was trained on another split of vehicles, so that it would be judged by" in capsys.readouterr().err
    assert main([*begun, "--search-scale", "1,2"]) == 2
    assert "scale = 1.0 is given, so there is none to search for" in capsys.readouterr().err
    # Said before data is read, which may take long.
    assert main([*begun, "--adapter", "adaptformer", "--data", str(tmp_path / "missing")]) == 2
    assert "old.safetensors: what begins with it has its adapter, lora with" in capsys.readouterr().err
    assert not new.exists()
    assert main(begun) == 0
    assert f"begins with the adapter and the reducer and the head of {old}\n" in capsys.readouterr().err
    was, header = (Task.load(path).header for path in (old, new))
    assert (header.adapter, header.reducer, header.head) == (was.adapter, was.reducer, was.head)
    assert header.preprocessing == darker
    assert header.provenance["start"]["digest"] == Task.load(old).digest
