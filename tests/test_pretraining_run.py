"""A run of pre-training ends in a backbone that can be loaded, and goes on from its checkpoint."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from fpet.backbone import load_backbone
from pretraining import __main__ as command
from pretraining import model
from pretraining.dataset import SIZE, SOURCES, Images
from pretraining.run import Options, Run

pytestmark = pytest.mark.usefixtures("one_thread")

TINY, SMALL, _ = model.ARCHITECTURES
COUNT = 64


@pytest.fixture(scope="module")
def images() -> Images:
    random = np.random.default_rng(0)
    number = np.arange(COUNT)
    return Images(
        pixels=random.integers(256, size=(COUNT, SIZE, SIZE, 4), dtype=np.uint8),
        label=number % 5,
        source=number % len(SOURCES),
        held_out=number % 16 == 0,
        classes=tuple("abcde"),
    )


def options(folder: Path, architecture: str = TINY, minutes: float = 1e-6) -> Options:
    return Options(
        architecture=architecture,
        device=torch.device("cpu"),
        minutes=minutes,  # of which one step takes the whole
        batch=8,
        seed=0,
        every=60,
        checkpoint=folder / "checkpoint.pt",
        output=folder / "backbone.safetensors",
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("run")


@pytest.fixture(scope="module")
def first(images: Images, folder: Path) -> Run:
    """One that ended after a step, which takes long on a CPU without bfloat16, in which Muon computes."""
    with torch.random.fork_rng(devices=[]):
        run = Run(images, options(folder))
        run.train()
    return run


def test_a_run_ends_in_a_backbone_of_its_architecture(first: Run, folder: Path, images: Images, tmp_path: Path) -> None:
    with torch.random.fork_rng(devices=[]):
        larger = Run(images, options(tmp_path, SMALL))
        larger.save()
    assert (first.steps, larger.steps) == (1, 0)
    for path, architecture, width in ((folder, TINY, 192), (tmp_path, SMALL, 384)):
        backbone = load_backbone(path / "backbone.safetensors")
        assert (backbone.architecture, backbone.geometry.embed_dim) == (architecture, width)


def test_a_run_goes_on_from_its_checkpoint(
    first: Run, folder: Path, images: Images, capsys: pytest.CaptureFixture[str]
) -> None:
    with torch.random.fork_rng(devices=[]):
        again = Run(images, options(folder, minutes=60))
    assert "resumed after" in capsys.readouterr().out
    assert (again.steps, again.seen, again.seconds) == (first.steps, first.seen, first.seconds)
    for name, value in first.vit.state_dict().items():
        assert torch.equal(value, again.vit.state_dict()[name]), name


def test_the_embedded_backbone_is_not_written_over_by_another_architecture(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["pretraining", "--architecture", SMALL])
    with pytest.raises(SystemExit):
        command.main()
    assert f"--output is needed for {SMALL}" in capsys.readouterr().err
