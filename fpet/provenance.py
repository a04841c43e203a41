"""Where a task comes from, as its file says it."""

from __future__ import annotations

from importlib.metadata import version

from fpet import __version__
from fpet.data import Dataset
from fpet.header import TaskHeader


def versions() -> dict[str, str]:
    """The versions of what the numbers of a file depend on."""
    return {"fpet": __version__} | {name: version(name) for name in ("torch", "timm")}


def data_name(header: TaskHeader) -> str:
    """The name of the data set that the task was trained on; empty if the header does not say."""
    name = _look_up(header, "data", "name")
    return name if isinstance(name, str) else ""


def trained_on_files(header: TaskHeader, dataset: Dataset) -> bool:
    """Whether the task was trained on the same files, however they were split."""
    return _look_up(header, "data", "sha256") == dataset.sha256


def other_choices(header: TaskHeader, dataset: Dataset) -> dict[str, object]:
    """The choices of the splits in training that differ from those of `dataset`."""
    trained = {name: _look_up(header, "data", name) for name in dataset.choices}
    return {name: value for name, value in trained.items() if value not in (None, dataset.choices[name])}


def stated_accuracy(header: TaskHeader, *, reduced: bool) -> float | None:
    """The accuracy on test images, 0 to 1, with token reduction or without; None if the header does not say."""
    accuracy = _look_up(header, "test", "accuracy" if reduced else "accuracy_unreduced")
    return accuracy if isinstance(accuracy, float) else None


def stated_temperature(header: TaskHeader) -> float:
    """What the head was divided by after the training (`fpet.temperature`); 1 if the header does not say."""
    value = _look_up(header, "temperature", "value")
    return value if isinstance(value, float) and value > 0 else 1.0


def _look_up(header: TaskHeader, group: str, key: str) -> object:
    values = header.provenance.get(group)
    return values.get(key) if isinstance(values, dict) else None
