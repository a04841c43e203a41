"""Where a task comes from, as its file says it."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from fpet.data import Dataset
from fpet.errors import DataError
from fpet.evaluate import Evaluation
from fpet.header import TaskHeader
from fpet.json_values import check_json
from fpet.training.recipe import Recipe
from fpet.training.run import Trained


def provenance(dataset: Dataset, recipe: Recipe, trained: Trained, tested: Evaluation) -> dict[str, Any]:
    """The provenance of a task header, JSON only: data, recipe, chosen epoch, accuracies (0 to 1), versions, date."""
    return {
        "data": {
            "name": dataset.name,
            "sha256": dataset.sha256,
            "train_images": len(dataset.train),
            "validation_images": len(dataset.val),
            "test_images": len(dataset.test),
            "skipped_images": len(dataset.skipped),
            **dataset.choices,
        },
        "recipe": dataclasses.asdict(recipe),
        "epoch": trained.epoch,
        "validation": {"accuracy": trained.accuracy, "loss": trained.loss},
        "test": dataclasses.asdict(tested),
        "versions": versions(),
        "date": datetime.now(UTC).date().isoformat(),
    }


def check_recordable(dataset: Dataset) -> None:
    """Raises DataError if a task file, which is in UTF-8, cannot name the data: before a training, not after it."""
    try:
        check_json(dataset.name, "it")
    except ValueError as error:
        raise DataError(f"the name of the data is to stand in the task file, but {error}; rename the folder") from error


def versions() -> dict[str, str]:
    """The versions of the libraries that the numbers of a file depend on."""
    return {name: version(name) for name in ("torch", "timm")}


def data_name(header: TaskHeader) -> str:
    """The name of the data set that the task was trained on; empty if the header does not say."""
    name = _look_up(header, "data", "name")
    return name if isinstance(name, str) else ""


def trained_on_files(header: TaskHeader, dataset: Dataset) -> bool:
    """Whether the task was trained on the same files, however they were split."""
    return _look_up(header, "data", "sha256") == dataset.sha256


def other_choices(header: TaskHeader, dataset: Dataset) -> dict[str, object]:
    """What chose the splits in training, as far as it is not what chose those of `dataset`."""
    trained = {name: _look_up(header, "data", name) for name in dataset.choices}
    return {name: value for name, value in trained.items() if value not in (None, dataset.choices[name])}


def stated_accuracy(header: TaskHeader, *, reduced: bool) -> float | None:
    """The accuracy on test images, 0 to 1, with token reduction or without; None if the header does not say."""
    accuracy = _look_up(header, "test", "accuracy" if reduced else "accuracy_unreduced")
    return accuracy if isinstance(accuracy, float) else None


def _look_up(header: TaskHeader, group: str, key: str) -> object:
    values = header.provenance.get(group)
    return values.get(key) if isinstance(values, dict) else None
