"""The embedded default: it loads, it answers, and its README says what it is."""

from __future__ import annotations

import hashlib
import math
import re
from pathlib import Path

import pytest
import torch
from PIL import Image
from serving import serving

from fpet.backbone import load_backbone
from fpet.embedded import default_backbone, embedded, task_path, tasks_folder
from fpet.errors import TaskError
from fpet.images import to_rgb
from fpet.provenance import stated_accuracy
from fpet.task import Task
from service.settings import Settings

ROOT = Path(__file__).parent.parent
README = (embedded() / "README.md").read_text()
TASKS = sorted(tasks_folder().glob("*.safetensors"))
BACKBONES = sorted(default_backbone().parent.glob("*.safetensors"))


def at_most(right: int, images: int, accuracy: float) -> float:
    """The probability of so few right answers or fewer (binomial)."""
    return sum(math.comb(images, k) * accuracy**k * (1 - accuracy) ** (images - k) for k in range(right + 1))


def test_there_are_tasks() -> None:
    assert {"digits", "fashion-mnist"} <= {path.stem for path in TASKS}


@pytest.mark.parametrize("path", [*BACKBONES, *TASKS], ids=lambda path: path.name)
def test_the_readme_names_every_file_with_its_digest(path: Path) -> None:
    (line,) = (line for line in README.splitlines() if line.startswith(f"| `{path.relative_to(embedded())}`"))
    assert hashlib.sha256(path.read_bytes()).hexdigest() in line
    assert f"| {path.stat().st_size:,} |" in line


@pytest.mark.parametrize("path", TASKS, ids=lambda path: path.stem)
@pytest.mark.parametrize("readme", [README, (ROOT / "README.md").read_text()], ids=["of the weights", "of the project"])
def test_the_readmes_state_size_and_accuracy_of_the_task(path: Path, readme: str) -> None:
    header = Task.load(path).header
    start = rf"\| {header.name} \| [^|]+ \| {header.adapter.kind}\b"
    (line,) = (line for line in readme.splitlines() if re.match(start, line))
    assert f"| {path.stat().st_size:,} |" in line
    for reduced in (True, False):
        accuracy = stated_accuracy(header, reduced=reduced)
        assert accuracy is not None
        assert f"| {100 * accuracy:.2f} |" in line


@pytest.mark.parametrize("path", TASKS, ids=lambda path: path.stem)
def test_the_samples_are_recognised_as_often_as_the_accuracy_promises(path: Path) -> None:
    task = Task.load(path)
    accuracy = stated_accuracy(task.header, reduced=True)
    assert accuracy is not None
    model = task.build(load_backbone(default_backbone()))
    preprocessing = task.header.preprocessing
    samples = sorted((embedded() / "samples" / path.stem).glob("*.png"))
    assert len(samples) >= 10
    pixels = torch.stack([preprocessing.resize(to_rgb(Image.open(sample))) for sample in samples])
    with torch.inference_mode():
        answers = model(preprocessing.normalize(pixels, torch.float32)).argmax(dim=1).tolist()
    right = sum(answer == int(sample.stem.split("-")[0]) for answer, sample in zip(answers, samples, strict=True))
    assert at_most(right, len(samples), accuracy) > 1e-3
    assert (model.tokens_in, model.tokens_out) == (197, 99)


def test_all_of_them_are_served_out_of_the_box() -> None:
    quick = {"dtype": "float32", "threads": 1, "max_batch": 1, "calibration_repeats": 0, "shutdown_delay": 0}
    settings = Settings(log_level="warning", **quick)
    with serving(settings) as service:
        states = {task["name"]: task["state"] for task in service.client.get("/v1/tasks").json()["tasks"]}
        assert states == dict.fromkeys((path.stem for path in TASKS), "loaded")
        for path in TASKS:
            sample = next((embedded() / "samples" / path.stem).glob("*.png"))
            answer = service.classify(sample.read_bytes(), path.stem).json()
            assert answer["digest"] == hashlib.sha256(path.read_bytes()).hexdigest()
            assert answer["tokens"] == {"in": 197, "out": 99}


def test_an_unknown_task_is_refused_with_the_names_there_are() -> None:
    assert task_path("digits") == tasks_folder() / "digits.safetensors"
    with pytest.raises(TaskError, match=r"no embedded task 'shoes'.*digits"):
        task_path("shoes")
