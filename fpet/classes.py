"""Whether a data set asks what a task answers: the same classes in the same order."""

from __future__ import annotations

from fpet.data import Dataset
from fpet.data.listing import composed
from fpet.errors import DataError
from fpet.header import TaskHeader
from fpet.words import first


def check_classes(header: TaskHeader, dataset: Dataset) -> None:
    """Raises DataError if the classes of the data are not the labels of the task, saying which differ."""
    trained, found = tuple(map(composed, header.labels)), tuple(map(composed, dataset.labels))
    if found == trained:
        return
    name = f"the classes of {dataset.name}"
    missing, unknown = sorted({*trained} - {*found}), sorted({*found} - {*trained})
    if not missing and not unknown:
        raise DataError(f"{name} are those of the task {header.name} in another order")
    stand_in = " (an empty folder of each will do)" if not len(dataset.train) else ""
    said = [f"it has no {first(missing)}{stand_in}"] if missing else []
    said += [f"the task knows no {first(unknown)}"] if unknown else []
    raise DataError(f"{name} are not those of the task {header.name}: {'; '.join(said)}")
