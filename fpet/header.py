"""The description in a task file: which backbone, adapter, reducer, labels and preprocessing belong together."""

from __future__ import annotations

import copy
import dataclasses
import json
import re
from collections.abc import Container
from dataclasses import dataclass, field
from typing import Any

from fpet.errors import UnsupportedError
from fpet.header_fields import header_object, parse_fields
from fpet.json_values import check_json
from fpet.preprocess import Preprocessing, check_precision

FORMAT = 1
_NAME = re.compile(r"[a-z0-9]([a-z0-9._-]{0,62}[a-z0-9])?")


@dataclass(frozen=True)
class BackboneRef:
    """The backbone that a task was trained on: timm name and arguments, which are copied, and the fingerprint of its
    weights.
    """

    architecture: str
    arguments: dict[str, Any]
    fingerprint: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "arguments", copy.deepcopy(self.arguments))


@dataclass(frozen=True)
class Method:
    """An adapter or reducer by kind and arguments, which are copied: the caller may change those that it gave.

    Raises:
        TypeError: if the arguments are no dict.
    """

    kind: str
    arguments: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.arguments, dict):
            raise TypeError(f"a method's arguments are a dict, not {self.arguments!r}")
        object.__setattr__(self, "arguments", copy.deepcopy(self.arguments))


@dataclass(frozen=True)
class HeadSpec:
    """The linear classifier: bits a weight (1, 2, 4, 8 or 32), and whether it has a bias."""

    bits: int = 32
    bias: bool = True


@dataclass(frozen=True)
class TaskHeader:
    """All of a task but its tensors.

    name: 1 to 64 of a-z, 0-9, dot, underscore, hyphen, first and last a letter or digit; labels: one a class, in the
    order of the logits, a list becomes a tuple; provenance: free (data, recipe, seed, accuracies).

    Raises:
        ValueError: for a name, method or label list that breaks these rules, or a mean or std beyond float32.
    """

    name: str
    backbone: BackboneRef
    adapter: Method
    reducer: Method
    labels: tuple[str, ...]
    preprocessing: Preprocessing
    head: HeadSpec = HeadSpec()
    provenance: dict[str, Any] = field(default_factory=dict)
    format: int = FORMAT

    def __post_init__(self) -> None:
        _check_format(self.format)
        check_name(self.name)
        for role, method in (("adapter", self.adapter), ("reducer", self.reducer)):
            if not isinstance(method, Method):
                raise ValueError(f"{role} {method!r} is not a Method, such as Method('none')")
        if not isinstance(self.labels, (tuple, list)) or not all(isinstance(label, str) for label in self.labels):
            raise ValueError(f"labels {self.labels!r} is not a tuple of texts")
        if len(set(self.labels)) != len(self.labels):
            raise ValueError("labels holds a label twice")
        if not self.labels:
            raise ValueError("labels is empty")
        object.__setattr__(self, "labels", tuple(self.labels))
        check_precision(self.preprocessing)

    def to_json(self) -> str:
        """The header as it is stored.

        Raises:
            ValueError: naming a field that JSON does not hold, or that `from_json` would refuse.
        """
        fields = dataclasses.asdict(self)
        check_json(fields, "header")
        text = json.dumps(fields, ensure_ascii=False, allow_nan=False)
        self.from_json(text)
        return text

    @classmethod
    def from_json(cls, text: str) -> TaskHeader:
        """Reads a header strictly.

        Raises:
            ValueError: naming the field that is missing, unknown, of the wrong type, not finite or out of its range;
                or if it is the header of a backbone or of a folded task.
        """
        try:
            fields = header_object(text)
            _refuse_others(fields)
            if isinstance(fields.get("format"), int):
                _check_format(fields["format"])  # before its fields, which may well be others
            header = parse_fields(cls, fields)
        except UnsupportedError as error:  # of the preprocessing
            raise ValueError(str(error)) from error
        assert isinstance(header, cls)
        return header


def _refuse_others(fields: Container[str]) -> None:
    """Raises ValueError, saying what it is, for the header of another file of ours."""
    if "architecture" in fields:
        raise ValueError("this is a backbone, not a task")
    if "folded" in fields:
        raise ValueError("this is a folded task, a checkpoint for stock timm, not a task file")


def _check_format(number: int) -> None:
    if number != FORMAT:
        raise ValueError(f"format {number} is not the known format {FORMAT}")


def check_name(name: str) -> None:
    """Raises ValueError if no task can have this name."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(f"name {name!r} is not 1 to 64 of a-z, 0-9, '.', '_', '-', the first and the last of a-z, 0-9")
