"""What is chosen is chosen on validation images, and test images are looked at once, after that."""

from __future__ import annotations

import dataclasses
from collections import Counter
from pathlib import Path
from typing import Any, cast
from weakref import WeakSet

import pytest
import torch
from serving import Files
from small import small_backbone, small_header
from torch import Tensor, nn

from fpet.backbone import Backbone, save_backbone
from fpet.cli import main
from fpet.data import Dataset, Images, Split
from fpet.errors import DivergedError, TaskError, UnsupportedError
from fpet.header import Method, TaskHeader
from fpet.preprocess import Preprocessing
from fpet.task import Task
from fpet.training.fit import evaluate_fitted, fit
from fpet.training.recipe import Recipe
from fpet.training.run import Run
from fpet.training.train import train

pytestmark = pytest.mark.usefixtures("one_thread")

RECIPE = Recipe(epochs=3, batch_size=16, lr=1e-2, warmup_epochs=0, validate_every=1)
SCALES = (0.1, 2.0, 10.0)


class Watched:
    """Images that count how often each is read."""

    def __init__(self, images: Images) -> None:
        self.images = images
        self.reads: Counter[int] = Counter()

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int, /) -> Tensor:
        self.reads[index] += 1
        return self.images[index]


def with_scale(header: TaskHeader, scale: float) -> TaskHeader:
    return dataclasses.replace(header, adapter=Method("adaptformer", {"dim": 4, "scale": scale}))


def test_the_scale_that_is_best_on_validation_images_is_kept(
    backbone: Backbone, digits: Dataset, tmp_path: Path
) -> None:
    header = small_header(backbone)
    alone = {
        scale: train(with_scale(header, scale), backbone, digits, RECIPE, tmp_path / f"{scale}.checkpoint")
        for scale in SCALES
    }
    best = max(alone, key=lambda scale: (alone[scale].accuracy, -alone[scale].loss))
    fitted = fit(header, backbone, digits, RECIPE, tmp_path / "run.checkpoint", scales=SCALES)
    assert fitted.header == with_scale(header, best)
    for name, value in alone[best].model.trainable().state_dict().items():
        assert torch.equal(fitted.trained.model.trainable().state_dict()[name], value), name
    assert fitted.tried == [
        {"scale": scale, "epoch": one.epoch, "accuracy": one.accuracy, "loss": one.loss} for scale, one in alone.items()
    ]
    described, _ = evaluate_fitted(fitted)
    assert described.provenance["scale_search"] == fitted.tried


def test_of_equally_accurate_scales_that_of_the_least_loss_is_kept(
    backbone: Backbone, digits: Dataset, tmp_path: Path
) -> None:
    recipe = dataclasses.replace(RECIPE, epochs=1)
    scales = (1.0, 1.001, 0.999)
    fitted = fit(small_header(backbone), backbone, digits, recipe, tmp_path / "run.checkpoint", scales=scales)
    losses = [tried["loss"] for tried in fitted.tried]
    assert len({tried["accuracy"] for tried in fitted.tried}) == 1
    assert fitted.trained.loss == min(losses) != losses[0]


@pytest.mark.parametrize("scales", [(), (2.0,)])
def test_a_file_says_what_was_searched_and_else_nothing_of_it(
    scales: tuple[float, ...], backbone: Backbone, digits: Dataset, tmp_path: Path
) -> None:
    recipe = dataclasses.replace(RECIPE, epochs=1)
    fitted = fit(small_header(backbone), backbone, digits, recipe, tmp_path / "run.checkpoint", scales=scales)
    described, _ = evaluate_fitted(fitted)
    assert [tried["scale"] for tried in described.provenance.get("scale_search", [])] == list(scales)
    assert ("scale_search" in described.provenance) is bool(scales)


@pytest.mark.parametrize(("batch_size", "expected"), [(3, 3), (80, 64)])
def test_no_test_takes_larger_batches_than_the_training(
    batch_size: int, expected: int, backbone: Backbone, digits: Dataset, tmp_path: Path
) -> None:
    """Who trains in small ones may have no memory for others."""
    recipe = dataclasses.replace(RECIPE, epochs=1, batch_size=batch_size)
    larger = dataclasses.replace(digits, test=digits.train)
    fitted = fit(small_header(backbone), backbone, larger, recipe, tmp_path / "run.checkpoint")
    sizes: list[int] = []
    embedding = cast(nn.Module, fitted.trained.model.vit.patch_embed)
    with embedding.register_forward_pre_hook(lambda _, given: sizes.append(len(given[0]))):
        evaluate_fitted(fitted)
    assert max(sizes) == min(expected, len(digits.train))


def test_a_broken_search_ends_like_an_unbroken_one(backbone: Backbone, digits: Dataset, tmp_path: Path) -> None:
    header = small_header(backbone)
    whole = fit(header, backbone, digits, RECIPE, tmp_path / "whole.checkpoint", scales=SCALES)
    first, second, _ = (tmp_path / f"broken.scale-{scale}.checkpoint" for scale in SCALES)
    train(with_scale(header, SCALES[0]), backbone, digits, RECIPE, first)
    finished = first.read_bytes()
    with torch.random.fork_rng(devices=[]):
        run = Run(with_scale(header, SCALES[1]), backbone, digits, RECIPE)
        run.advance(lambda: None)
        run.state().save(second)  # ... and is killed
    resumed = fit(header, backbone, digits, RECIPE, tmp_path / "broken.checkpoint", scales=SCALES)
    assert first.read_bytes() == finished
    assert (resumed.header, resumed.tried) == (whole.header, whole.tried)
    for name, value in whole.trained.model.trainable().state_dict().items():
        assert torch.equal(resumed.trained.model.trainable().state_dict()[name], value), name


def test_test_images_are_read_once_after_all_choices(backbone: Backbone, digits: Dataset, tmp_path: Path) -> None:
    watched = Watched(digits.test.images)
    seen = dataclasses.replace(digits, test=Split(watched, digits.test.targets))
    fitted = fit(small_header(backbone), backbone, seen, RECIPE, tmp_path / "run.checkpoint", scales=SCALES)
    assert not watched.reads
    evaluate_fitted(fitted)
    assert watched.reads == Counter(range(len(digits.test)))


def test_a_search_decodes_what_it_trains_on_once(backbone: Backbone, digits: Dataset, tmp_path: Path) -> None:
    train, val = (Split(Watched(split.images), split.targets) for split in (digits.train, digits.val))
    seen, header = dataclasses.replace(digits, train=train, val=val), small_header(backbone)
    fit(header, backbone, seen, dataclasses.replace(RECIPE, epochs=1), tmp_path / "run.checkpoint", scales=SCALES)
    for split in (train, val):
        assert cast(Watched, split.images).reads == Counter(range(len(split)))
        made = split.resized(header.preprocessing)
        smaller = split.resized(Preprocessing((8, 8)))  # in place of the other, for which there may be no memory
        assert smaller.images.shape[2:] == (8, 8)
        assert not split.is_made(header.preprocessing)
        assert torch.equal(split.resized(header.preprocessing).images, made.images)


@pytest.mark.parametrize("name", ["run", "run.1", "run.pt"])
def test_each_scale_has_its_own_logs_whatever_the_checkpoint_is_called(
    name: str, backbone: Backbone, digits: Dataset, tmp_path: Path
) -> None:
    pytest.importorskip("tensorboard")
    recipe, (output, log) = dataclasses.replace(RECIPE, epochs=1), (tmp_path / "out", tmp_path / "log")
    scales = (0.1, 0.2, 0.1)
    fitted = fit(small_header(backbone), backbone, digits, recipe, output / name, scales=scales, tensorboard=log)
    names = {path.name for path in fitted.checkpoints}
    assert len(names) == 2
    assert {path.name for path in output.iterdir()} == names | {f"{name}.csv" for name in names}
    assert {path.name for path in log.iterdir()} == names


def test_the_command_searches_and_leaves_no_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tensorboard")
    backbone, output, log = tmp_path / "backbone.safetensors", tmp_path / "out", tmp_path / "log"
    save_backbone(backbone, small_backbone())
    command = ["train", "--data", "digits", "--name", "digits", "--backbone", str(backbone), "--epochs", "1"]
    more = ["--output", str(output / "digits.safetensors"), "--search-scale", "0.5,2", "--tensorboard", str(log)]
    assert main([*command, *more, "--class-weights", "balanced"]) == 0
    header = Task.load(output / "digits.safetensors").header
    said = f"scale {header.adapter.arguments['scale']}, epoch 1 of 1, balanced validation accuracy"
    assert said in capsys.readouterr().out
    assert header.provenance["recipe"]["class_weights"] == "balanced"
    assert [tried["scale"] for tried in header.provenance["scale_search"]] == [0.5, 2.0]
    names = ["digits.safetensors", "digits.scale-0.5.csv", "digits.scale-2.0.csv"]
    assert sorted(path.name for path in output.iterdir()) == names
    assert sorted(path.name for path in log.iterdir()) == ["digits.scale-0.5", "digits.scale-2.0"]
    assert main([*command, "--adapter", "ssf", "--search-scale", "1"]) == 2
    assert "ssf has no argument 'scale'" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main([*command, "--search-scale", "1,two"])
    assert "'1,two' is not a list of numbers" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("adapter", "scales", "message"),
    [
        (Method("ssf"), SCALES, "ssf has no argument 'scale'"),
        (Method("lora", {"scale": 1.0}), SCALES, "lora: scale = 1.0 is given"),
        (Method("lora"), (1.0, -1.0), "lora: scale = -1.0 should be above 0 and finite"),
        (Method("lora"), (float("nan"),), "lora: scale = nan should be above 0 and finite"),
        (Method("lora", {"scale": -1.0}), (), "lora: scale = -1.0 should be above 0 and finite"),
        (Method("lora"), (1.0, 1e39), r"lora: scale = 1e\+39 is beyond float32"),
    ],
)
def test_a_search_for_nothing_is_refused(
    adapter: Method, scales: tuple[float, ...], message: str, digits: Dataset, tmp_path: Path
) -> None:
    backbone = small_backbone()
    with pytest.raises(UnsupportedError, match=message):
        fit(small_header(backbone, adapter), backbone, digits, RECIPE, tmp_path / "run.checkpoint", scales=scales)
    assert not list(tmp_path.iterdir())


def test_a_log_takes_the_place_of_no_other_table(
    small_files: Files, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output, empty = tmp_path / "digits.safetensors", tmp_path / "pictures"
    empty.mkdir()  # which would be found out when data is read
    command = ["train", "--name", "digits", "--data", str(empty), "--backbone", str(small_files.backbone)]
    for name, more in (("digits.csv", []), ("digits.scale-2.0.csv", ["--search-scale", "0.5,2"])):
        table = tmp_path / name
        for content in ("run,data\n1,digits\n", "epoch,lr\n", ""):
            table.write_text(content)
            assert main([*command, "--output", str(output), *more]) == 2
            assert f"{table}: there is such a file already, and it is no log" in capsys.readouterr().err
            assert table.read_text() == content
        table.unlink()


def test_a_log_takes_the_place_of_another_log(backbone: Backbone, digits: Dataset, tmp_path: Path) -> None:
    checkpoint, log = tmp_path / "run.checkpoint", tmp_path / "run.csv"
    lines = []
    for epochs in (2, 1):
        fit(small_header(backbone), backbone, digits, dataclasses.replace(RECIPE, epochs=epochs), checkpoint)
        checkpoint.unlink()
        lines.append(len(log.read_text().splitlines()))
    assert lines == [3, 2]


@pytest.mark.parametrize("resumed", [False, True])
def test_a_file_that_is_no_log_is_left_alone(
    resumed: bool, backbone: Backbone, digits: Dataset, tmp_path: Path
) -> None:
    checkpoint, log = tmp_path / "run.checkpoint", tmp_path / "run.csv"
    if resumed:
        fit(small_header(backbone), backbone, digits, RECIPE, checkpoint)
    assert checkpoint.exists() == resumed
    for text in ("a,b\n", ""):
        log.write_text(text)
        with pytest.raises(TaskError, match=r"run\.csv: there is such a file already, and it is no log of a training"):
            fit(small_header(backbone), backbone, digits, RECIPE, checkpoint)
        assert log.read_text() == text


def test_a_scale_that_diverges_is_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    backbone, output = tmp_path / "backbone.safetensors", tmp_path / "out"
    save_backbone(backbone, small_backbone())
    command = ["train", "--data", "digits", "--name", "digits", "--backbone", str(backbone), "--epochs", "1"]
    more = ["--adapter-arguments", "dropout=0", "--lr", "1", "--output", str(output / "digits.safetensors")]
    assert main([*command, *more, "--search-scale", "3e38,0.5"]) == 0
    captured = capsys.readouterr()
    assert "scale 0.5, epoch 1 of 1" in captured.out
    first, out, second, *_ = (line for line in captured.err.splitlines() if ": scale " in line)
    assert (first, second) == ("fpet: digits: scale 3e+38", "fpet: digits: scale 0.5")
    diverged = "training diverged: the loss of epoch 1 is nan"
    assert out == f"fpet: digits: scale 3e+38 is out: {diverged}"
    lost, won = Task.load(output / "digits.safetensors").header.provenance["scale_search"]
    assert lost == {"scale": 3e38, "diverged": diverged}
    assert sorted(won) == ["accuracy", "epoch", "loss", "scale"]
    assert sorted(path.name for path in output.iterdir()) == ["digits.safetensors", "digits.scale-0.5.csv"]


def test_a_training_that_diverged_is_gone_when_the_next_begins(
    backbone: Backbone, digits: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: WeakSet[Run] = WeakSet()
    others: list[int] = []

    def begin(*given: Any, **more: Any) -> Run:
        others.append(len(runs))
        run = Run(*given, **more)
        runs.add(run)
        return run

    monkeypatch.setattr("fpet.training.train.Run", begin)
    recipe = dataclasses.replace(RECIPE, lr=1.0)
    fitted = fit(small_header(backbone), backbone, digits, recipe, tmp_path / "run.checkpoint", scales=(3e38, 0.5))
    assert ["diverged" in one for one in fitted.tried] == [True, False]
    assert others == [0, 0]


def test_only_if_all_scales_diverge_the_search_does(backbone: Backbone, digits: Dataset, tmp_path: Path) -> None:
    recipe, said = dataclasses.replace(RECIPE, lr=1e30), "training diverged: the (validation )?loss of epoch 1 is nan"
    with pytest.raises(DivergedError, match=f"^scale 1.0: {said}; scale 2.0: {said}$"):
        fit(small_header(backbone), backbone, digits, recipe, tmp_path / "run.checkpoint", scales=(1.0, 2.0))
