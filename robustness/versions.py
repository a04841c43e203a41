"""Task files of which it is known what they answer: the embedded tasks, with their labels in another order."""

from __future__ import annotations

import dataclasses
import hashlib
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from PIL import Image

from fpet.backbone import Backbone, load_backbone
from fpet.embedded import default_backbone, embedded, task_path
from fpet.task import Task, save_tensors
from service.decode import decode_image

_SHIFTS = (0, 1, 2)
_MAX_PIXELS = 10_000


@dataclass(frozen=True)
class Version:
    """A task file; expected: the label that it gives each image."""

    data: bytes
    digest: str
    expected: tuple[str, ...]


@dataclass(frozen=True)
class Subject:
    """A task under its name, its versions, and images for it."""

    name: str
    images: tuple[bytes, ...]
    versions: tuple[Version, ...]

    def judge(self, digest: str, image: int, label: str) -> str | None:
        """What is wrong with an answer; None if one version gave it, and gave it right."""
        for version in self.versions:
            if version.digest == digest:
                right = version.expected[image]
                return None if label == right else f"{self.name} {digest[:8]} says {label!r} instead of {right!r}"
        return f"{self.name} has no version {digest[:8]}"


def subjects(names: Sequence[tuple[str, str]]) -> tuple[Subject, ...]:
    """For each (name, embedded task that it is made of)."""
    Image.init()
    backbone = load_backbone(default_backbone())
    return tuple(_subject(name, source, backbone) for name, source in names)


def _subject(name: str, source: str, backbone: Backbone) -> Subject:
    task = Task.load(task_path(source))
    images = tuple(path.read_bytes() for path in sorted((embedded() / "samples" / source).iterdir()))
    pixels = [decode_image(image, ("png", "jpeg"), _MAX_PIXELS) for image in images]
    preprocessing = task.header.preprocessing
    batch = preprocessing.normalize(torch.stack([preprocessing.resize(image) for image in pixels]), torch.float32)
    with torch.inference_mode():
        best = task.build(backbone)(batch).argmax(dim=1).tolist()
    labels = task.header.labels
    versions = []
    with tempfile.TemporaryDirectory() as folder:
        for shift in _SHIFTS:
            turned = labels[shift:] + labels[:shift]
            path = Path(folder) / f"{shift}.safetensors"
            save_tensors(path, dataclasses.replace(task.header, name=name, labels=turned), task.tensors, backbone)
            data = path.read_bytes()
            expected = tuple(turned[index] for index in best)
            versions.append(Version(data, hashlib.sha256(data).hexdigest(), expected))
    return Subject(name, images, tuple(versions))
