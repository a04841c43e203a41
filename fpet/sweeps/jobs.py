"""The runs of a plan."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fpet.backbone import Backbone
from fpet.data import SOURCES, Dataset, load_dataset
from fpet.errors import DataError, FpetError, UnsupportedError
from fpet.files import exists
from fpet.header import TaskHeader
from fpet.sweeps.plan import Plan, PlannedMethod
from fpet.training.fit import check_fit
from fpet.untrained import at_middle_block, new_header, preprocessing_of

KEY = 12  # hexadecimal digits that identify a run
_NAME = 50  # characters of a task's name, before its key


@dataclass(frozen=True)
class Job:
    """One run of a plan.

    data: its label in the plan; dataset: what it names, or why it cannot be had; method: with the run's seed; key:
    identifies all of it.
    """

    data: str
    dataset: Dataset | DataError
    method: PlannedMethod
    key: str

    @property
    def name(self) -> str:
        """The name of its task."""
        words = f"{Path(self.data).name}-{self.method.name}-{self.method.recipe.seed}".lower()
        return f"{re.sub('[^a-z0-9._-]+', '-', words).strip('.-_')[:_NAME]}-{self.key}"

    def kept(self, folder: Path) -> Path:
        """Where its task file is kept in a folder."""
        return folder / f"{self.name}.safetensors"


def jobs(plan: Plan, backbone: Backbone, cache: Path | None) -> Iterator[Job]:
    """The runs of a plan, data set by data set, so that one is in memory at a time.

    cache: folder that fetched data is kept in, if not the usual one.
    """
    reference = {
        # The same weights make another function by another activation. What follows the dot names weights.
        "architecture": backbone.architecture.partition(".")[0],
        "fingerprint": backbone.fingerprint,
        "arguments": backbone.arguments,
        "preprocessing": dataclasses.asdict(preprocessing_of(backbone)),
    }
    for data in plan.data:
        try:
            dataset: Dataset | DataError = load_dataset(data.source, None, cache, data.reading)
        except DataError as error:
            dataset = error
        source = {"data": data.label, "sha256": None if isinstance(dataset, DataError) else dataset.sha256}
        for planned in plan.methods:
            for seed in plan.seeds:
                recipe = dataclasses.replace(planned.recipe, seed=seed)
                method = dataclasses.replace(_placed(planned, backbone), recipe=recipe)
                numbers = dataclasses.asdict(method) | {"recipe": recipe.identity()}
                described = {"source": source, "backbone": reference, "method": numbers}
                key = hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()[:KEY]
                yield Job(data.label, dataset, method, key)


def new_task(method: PlannedMethod, name: str, labels: tuple[str, ...], backbone: Backbone) -> TaskHeader:
    """The header of a task that is to be trained with the method; raises as `new_header`."""
    adapter, reducer, bits = method.adapter, method.reducer, method.head_bits
    return new_header(name, labels, backbone, adapter=adapter, reducer=reducer, head_bits=bits)


def check_plan(plan: Plan, backbone: Backbone) -> None:
    """Checks that all data are there and each method can be trained, as far as is known before reading; takes no time.

    Raises:
        UnsupportedError: naming all data sets and methods that are wrong, and why.
    """
    if wrong := [*_missing_data(plan), *_wrong_methods(plan, backbone)]:
        raise UnsupportedError("; ".join(wrong))


def _missing_data(plan: Plan) -> list[str]:
    """Why data cannot be read that are neither a source nor a folder, or both."""
    missing = []
    for data in plan.data:
        try:
            if not data.source or (data.source in SOURCES) == (
                exists(path := Path(data.source), DataError) and path.is_dir()
            ):
                load_dataset(data.source)
        except DataError as error:
            missing.append(str(error))
    return missing


def _wrong_methods(plan: Plan, backbone: Backbone) -> list[str]:
    wrong = []
    for planned in plan.methods:
        method = _placed(planned, backbone)
        try:
            check_fit(new_task(method, "plan", ("0", "1"), backbone), backbone, method.recipe, method.scales)
        except FpetError as error:
            wrong.append(f"{method.name}: {error}")
    return wrong


def _placed(planned: PlannedMethod, backbone: Backbone) -> PlannedMethod:
    """The method for this backbone: a reduction that names no block gets the middle one."""
    return dataclasses.replace(planned, reducer=at_middle_block(planned.reducer, backbone.geometry.depth))
