"""A folded task is made and asked by stock timm as its file and the printed expression say, preprocessing included."""

from __future__ import annotations

import dataclasses
import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import timm.data
import torch
from PIL import Image
from serving import REPADAPTER, write_task
from small import ARCHITECTURE, ARGUMENTS, perturb, small_header

from fpet.backbone import Backbone, create_backbone, save_backbone
from fpet.cli import main
from fpet.embedded import embedded, task_path
from fpet.errors import TaskError
from fpet.header import Method
from fpet.images import to_rgb
from fpet.preprocess import Preprocessing
from fpet.safetensors_files import read_safetensors
from fpet.task import Task, new_model, save_task

pytestmark = pytest.mark.usefixtures("one_thread")


def folded(capsys: pytest.CaptureFixture[str], output: Path, *arguments: str) -> Any:
    """Folds, and makes the model with timm as printed."""
    assert main(["fold", *arguments, "--output", str(output)]) == 0
    _, _, printed = capsys.readouterr().out.partition(": ")
    return eval(printed, {"timm": timm, "functools": functools}).eval()


def both_ways(stock: Any, preprocessing: Preprocessing, image: Image.Image) -> tuple[torch.Tensor, torch.Tensor]:
    """An image [1, 3, H, W] as timm's own transform prepares it for the model, and as the task does."""
    transform = timm.data.create_transform(**timm.data.resolve_model_data_config(stock))
    ours = preprocessing.normalize(preprocessing.resize(to_rgb(image))[None], torch.float32)
    return transform(image.convert("RGB"))[None], ours


def grey_levels(preprocessing: Preprocessing, images: torch.Tensor) -> torch.Tensor:
    return (images * torch.tensor(preprocessing.std)[:, None, None] * 255).abs()


def test_stock_preprocessing_and_labels_are_those_of_the_task(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stock = folded(capsys, tmp_path / "folded.safetensors", "--task", "digits")
    task = Task.load(task_path("digits"))
    sample = embedded() / "samples" / "digits" / "5-9.png"
    theirs, ours = both_ways(stock, task.header.preprocessing, Image.open(sample))
    assert theirs.shape == ours.shape
    differences = grey_levels(task.header.preprocessing, theirs - ours)
    assert differences.max() < 2.5  # rounded twice, once a direction, in another order
    assert differences.mean() < 0.01
    with torch.inference_mode():
        label = stock.pretrained_cfg["label_names"][stock(theirs).argmax()]
    assert main(["classify", str(sample), "--task", "digits", "--tokens", "full"]) == 0
    assert capsys.readouterr().out.split("\t")[1] == label == "5"


def test_an_image_is_squashed_to_a_size_that_is_not_square(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    backbone = create_backbone(ARCHITECTURE, {**ARGUMENTS, "img_size": [16, 32]})
    weights, path, output = (tmp_path / f"{name}.safetensors" for name in ("backbone", "task", "folded"))
    save_backbone(weights, backbone)
    preprocessing = Preprocessing((16, 32), (0.1, 0.2, 0.3), (0.4, 0.5, 0.6), "bilinear")
    labels = ("it's", 'a "label"', "Äpfel", "ספר", "a\\b", *"56789")
    header = dataclasses.replace(small_header(backbone, adapter=REPADAPTER), preprocessing=preprocessing, labels=labels)
    write_task(path, header, backbone)
    stock = folded(capsys, output, "--task", str(path), "--backbone", str(weights))
    noise = np.random.default_rng(0).integers(0, 256, (90, 50, 3), dtype=np.uint8)
    theirs, ours = both_ways(stock, preprocessing, Image.fromarray(noise))
    assert theirs.shape == (1, 3, 16, 32)
    assert grey_levels(preprocessing, theirs - ours).max() < 1.5
    assert stock.pretrained_cfg["label_names"] == labels
    assert stock.pretrained_cfg["num_classes"] == len(labels)


FOLDABLE = [Method("lora", {"dim": 4}), REPADAPTER, Method("ssf"), Method("bitfit"), Method("full"), Method("fact-tt")]


def task_of(folder: Path, architecture: str, adapter: Method, more: dict[str, object]) -> tuple[Path, Backbone]:
    """A task with weights that matter, and its backbone, also in a file beside it."""
    backbone = create_backbone(architecture, {**ARGUMENTS, **more})
    save_backbone(folder / "backbone.safetensors", backbone)
    torch.manual_seed(0)
    header = small_header(backbone, adapter)
    model = new_model(header, backbone)
    perturb(model.trainable(), 0.3)
    save_task(folder / "digits.safetensors", header, model)
    return folder / "digits.safetensors", backbone


@pytest.mark.parametrize("adapter", FOLDABLE, ids=lambda adapter: adapter.kind)
@pytest.mark.parametrize("architecture", ["deit_tiny_distilled_patch16_224", "vit_base_patch16_clip_224"])
def test_two_heads_and_a_patch_embedding_without_bias_answer_alike(
    architecture: str, adapter: Method, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task, backbone = task_of(tmp_path, architecture, adapter, {})
    places = ("--task", str(task), "--backbone", str(tmp_path / "backbone.safetensors"))
    stock = folded(capsys, tmp_path / "folded.safetensors", *places)
    images = torch.randn((2, 3, 16, 16), generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        expected = Task.load(task).build(backbone).unreduced()(images)
        torch.testing.assert_close(stock(images), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("option", "bias"), [("qkv_bias", "attn.qkv.bias"), ("proj_bias", "attn.proj.bias")])
def test_a_bias_that_stock_timm_would_not_take_is_refused(
    option: str, bias: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task, _ = task_of(tmp_path, ARCHITECTURE, Method("ssf"), {option: False})
    output = tmp_path / "folded.safetensors"
    places = ["--task", str(task), "--backbone", str(tmp_path / "backbone.safetensors"), "--output", str(output)]
    assert main(["fold", *places]) == 2
    said = f"{output}: timm's {ARCHITECTURE} with these arguments has no 'blocks.0.{bias}', which ssf needs there"
    assert capsys.readouterr().err == f"fpet: {said}\n"
    assert not output.exists()


def test_the_file_says_what_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folded(capsys, tmp_path / "folded.safetensors", "--task", "digits")
    metadata, _ = read_safetensors(tmp_path / "folded.safetensors", TaskError)
    task = Task.load(task_path("digits"))
    said = json.loads(task.header.to_json())
    assert json.loads(metadata["fpet"]) == {
        "folded": {
            "task": "digits",
            "digest": task.digest,
            "labels": said["labels"],
            "preprocessing": said["preprocessing"],
            "architecture": said["backbone"]["architecture"],
            "arguments": said["backbone"]["arguments"],
        }
    }
