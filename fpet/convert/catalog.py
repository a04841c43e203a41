"""What a published file does not say of itself: its method and task, and the scale, without which it cannot be run."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path

from fpet.convert.fields import Fields, read_json
from fpet.errors import TaskError
from fpet.header import HeadSpec, Method
from fpet.linear import FULL_PRECISION


@dataclass(frozen=True)
class Published:
    """What is to be known of a file.

    kind: adaptformer or lora; dim, scale, bits: its arguments; head_bits: 32, or fewer for a "bihead"; classes: how
    many, if known.

    Raises:
        TaskError: for a scale that is no number.
    """

    kind: str
    dim: int
    scale: float
    bits: int = 1
    head_bits: int = FULL_PRECISION
    classes: int | None = None

    def __post_init__(self) -> None:
        if not math.isfinite(self.scale):
            raise TaskError(f"scale = {self.scale} is not finite")

    @property
    def adapter(self) -> Method:
        """As a task header has it."""
        return Method(self.kind, {"dim": self.dim, "scale": self.scale, "bits": self.bits})

    @property
    def head(self) -> HeadSpec:
        """As a task header has it: a bias exactly if it is not quantised."""
        return HeadSpec(self.head_bits, bias=self.head_bits == FULL_PRECISION)


def look_up(catalog: str | os.PathLike[str], file: str | os.PathLike[str]) -> Published:
    """The entry of a file in a catalog: a JSON list whose `file` is relative to the catalog's folder.

    Raises:
        TaskError: if the catalog cannot be read, has no such entry or a field is missing or of the wrong type.
    """
    catalog, file = Path(catalog), Path(file)
    entries = read_json(catalog, TaskError)
    if not isinstance(entries, list):
        raise TaskError(f"{catalog}: not a JSON list")
    for number, value in enumerate(entries):
        fields = Fields.of(value, f"{catalog}, entry {number}", TaskError)
        if (catalog.parent / fields.get("file", str)).resolve() == file.resolve():
            return Published(
                kind=fields.get("method", str),
                dim=fields.get("hidden_dim", int),
                scale=fields.get("scale", float),
                bits=fields.get("bits", int),
                head_bits=fields.get("head_bits", int),
                classes=fields.get("num_classes", int),
            )
    raise TaskError(f"{catalog}: there is no entry for {file}")
