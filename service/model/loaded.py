"""Tasks in service: of each its tensors and its header, and of their family, once, all that they have in common."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from pathlib import Path

from fpet.header import TaskHeader
from fpet.inference.mixed import Template
from fpet.inference.packed_weights import PackedWeights
from fpet.inference.task_weights import Weights
from fpet.vit import AdaptedViT
from service.model.timings import Timings


@dataclass(frozen=True, eq=False)
class Family:
    """Tasks that can share a batch; it is there as long as one of them is.

    name: what they have in common, in words; header: of the first of them; tokens_in, tokens_out: of one image, with
    reduction.
    """

    name: str
    header: TaskHeader
    template: Template
    tokens_in: int
    tokens_out: int
    timings: Timings

    @classmethod
    def of(cls, name: str, header: TaskHeader, model: AdaptedViT, timings: Timings) -> Family:
        """The family of a task, by its model as loaded from its file."""
        return cls(name, header, Template(model), model.tokens_in, model.tokens_out, timings)

    @property
    def reduces(self) -> bool:
        """Whether its tasks have a token reduction."""
        return self.header.reducer.kind != "none"

    def share(self, header: TaskHeader) -> TaskHeader:
        """The header of a task of the family; what in it equals the first one's is held once."""
        values = {field.name: getattr(self.header, field.name) for field in fields(TaskHeader)}
        return replace(header, **{name: value for name, value in values.items() if value == getattr(header, name)})


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class LoadedTask:
    """A task that can answer; it is replaced as a whole and never changed.

    digest, size: of the task file; generation: how often a task of this name was loaded, from 1; weights: packed, if
    that takes much less.
    """

    path: Path
    header: TaskHeader
    digest: str
    size: int
    generation: int
    family: Family
    weights: Weights | PackedWeights

    @property
    def tokens_in(self) -> int:
        """Tokens of one image at the first block."""
        return self.family.tokens_in

    @property
    def tokens_out(self) -> int:
        """Tokens of one image after the last block, with reduction."""
        return self.family.tokens_out


def resident_bytes(tasks: Iterable[LoadedTask]) -> int:
    """Bytes of the tensors of tasks, and of what their families hold beside the backbone."""
    tasks = list(tasks)
    families = {task.family for task in tasks}
    return sum(task.weights.nbytes for task in tasks) + sum(family.template.nbytes for family in families)
