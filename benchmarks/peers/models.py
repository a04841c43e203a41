"""What the peers serve: full timm models, each with the one task folded into it, in the type that the service uses."""

from __future__ import annotations

import dataclasses
import io
import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from fpet.backbone import Backbone
from fpet.errors import TaskError
from fpet.folding import fold
from fpet.hardware.precision import DTYPES
from fpet.images import to_rgb
from fpet.preprocess import Preprocessing
from fpet.safetensors_files import write_safetensors
from fpet.task import Task
from fpet.timm_checkpoint import timm_state

import timm  # isort: skip  # once fpet has declared what timm needs of torchvision

_DESCRIPTION = "models.json"


def write_models(folder: Path, tasks: Sequence[Path], backbone: Backbone, dtype: str) -> None:
    """Writes the tasks as timm checkpoints, and how to make a model of them; the tasks differ in weights alone.

    dtype: in which they compute.
    """
    for path in tasks:
        model = fold(Task.load(path).build(backbone))
        write_safetensors(folder / path.name, timm_state(model), {}, TaskError)
    header = Task.load(tasks[0]).header
    description = {
        "architecture": header.backbone.architecture,
        "arguments": {**header.backbone.arguments, "num_classes": len(header.labels)},
        "labels": header.labels,
        "preprocessing": dataclasses.asdict(header.preprocessing),
        "dtype": dtype,
    }
    (folder / _DESCRIPTION).write_text(json.dumps(description))


class Models:
    """The full models in a folder, by name; images are decoded and resized as the service does."""

    def __init__(self, folder: Path) -> None:
        described = json.loads((folder / _DESCRIPTION).read_text())
        self._labels: list[str] = described["labels"]
        self._dtype = DTYPES[described["dtype"]]
        preprocessing = described["preprocessing"]
        tuples = {name: tuple(preprocessing[name]) for name in ("size", "mean", "std")}
        self._preprocessing = Preprocessing(**{**preprocessing, **tuples})
        make = partial(timm.create_model, described["architecture"], **described["arguments"])
        self._models: dict[str, Any] = {
            path.stem: make(checkpoint_path=str(path)).eval().to(self._dtype) for path in folder.glob("*.safetensors")
        }

    def decode(self, data: bytes) -> Tensor:
        """An encoded image to uint8 [3, H, W]."""
        return decode(data, self._preprocessing)

    def classify_each(self, names: Sequence[str], images: Sequence[Tensor]) -> list[dict[str, Any]]:
        """As `classify`, each image by the model of its own name; those of one name run together."""
        answers: dict[int, dict[str, Any]] = {}
        for name in dict.fromkeys(names):
            places = [place for place, other in enumerate(names) if other == name]
            answers |= zip(places, self.classify(name, [images[place] for place in places]), strict=True)
        return [answers[place] for place in range(len(names))]

    def classify(self, name: str, images: Sequence[Tensor]) -> list[dict[str, Any]]:
        """The best label of each image and its probability, by the model of that name."""
        with torch.inference_mode():
            pixels = self._preprocessing.normalize(torch.stack(list(images)), self._dtype)
            values, indices = self._models[name](pixels).float().softmax(dim=1).max(dim=1)
        return [
            {"label": self._labels[index], "probability": value}
            for value, index in zip(values.tolist(), indices.tolist(), strict=True)
        ]


def decode(data: bytes, preprocessing: Preprocessing) -> Tensor:
    """An encoded image to uint8 [3, H, W]."""
    return preprocessing.resize(to_rgb(Image.open(io.BytesIO(data))))
