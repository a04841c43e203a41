"""Where a task comes from, as it is written into its file after a training; `fpet.provenance` reads it."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from typing import Any

from fpet.data import Dataset
from fpet.errors import DataError
from fpet.evaluation import Evaluation
from fpet.hardware.devices import device_name
from fpet.json_values import check_json
from fpet.provenance import versions
from fpet.training.recipe import Recipe
from fpet.training.run import Trained


def provenance(dataset: Dataset, recipe: Recipe, trained: Trained, tested: Evaluation) -> dict[str, Any]:
    """The provenance of a task header, JSON only: data, recipe, chosen epoch, accuracies (0 to 1), on what, date."""
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
        "recipe": recipe.numbers(),
        "epoch": trained.epoch,
        "validation": {"accuracy": trained.accuracy, "loss": trained.loss},
        "test": dataclasses.asdict(tested),
        "processes": trained.processes,
        "device": device_name(trained.model.backbone.device),
        "versions": versions(),
        "date": datetime.now(UTC).date().isoformat(),
    }


def check_recordable(dataset: Dataset) -> None:
    """Raises DataError if a task file, which is in UTF-8, cannot name the data: before a training, not after it."""
    try:
        check_json(dataset.name, "it")
    except ValueError as error:
        raise DataError(f"the name of the data is to stand in the task file, but {error}; rename the folder") from error
