"""What a backbone file of ours says of itself: how timm makes the model, and how its images are normalised."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from fpet.errors import BackboneError, UnsupportedError
from fpet.header_fields import check_names, header_object
from fpet.json_values import check_json, is_finite
from fpet.preprocess import Preprocessing, Triple, check_precision

FORMAT = 1
_METADATA_KEY = "fpet"
# What may be chosen anew for a file that describes itself.
_ADJUSTABLE = {"img_size", "global_pool", "fc_norm", "pool_include_prefix"}


@dataclass(frozen=True)
class Description:
    """What a backbone file of ours says of itself.

    architecture, arguments: how timm makes the model; normalization: `mean` and `std` of its images, a channel each,
    or nothing where timm's table holds; provenance: free (source, SHA-256, versions).

    Raises:
        BackboneError: naming the field that is missing or of the wrong type.
    """

    architecture: str
    arguments: dict[str, object]
    normalization: dict[str, Triple] = field(default_factory=dict)
    provenance: dict[str, object] = field(default_factory=dict)
    format: int = FORMAT

    def __post_init__(self) -> None:
        if not isinstance(self.architecture, str):
            raise BackboneError("the header's architecture is not text")
        for name in ("arguments", "normalization", "provenance"):
            if not isinstance(getattr(self, name), dict):
                raise BackboneError(f"the header's {name} is not an object")
        check_normalization(self.normalization)

    def adjusted(
        self, architecture: str | None, arguments: Mapping[str, object], normalization: Mapping[str, Triple]
    ) -> Description:
        """The same with another image size, pooling or normalisation; all else belongs to the file's weights.

        Raises:
            BackboneError: naming what the file says otherwise.
        """
        if architecture not in (None, self.architecture):
            raise BackboneError(f"the file is of {self.architecture}, not of {architecture}")
        size = arguments.get("img_size")
        if isinstance(size, (list, tuple)) and len(set(size)) == 1:  # as one number: tasks are compared by what it says
            arguments = {**arguments, "img_size": size[0]}
        for name, value in arguments.items():
            if name not in _ADJUSTABLE and self.arguments.get(name) != value:
                raise BackboneError(f"{name} = {value}: the file says itself how its weights are used")
        return dataclasses.replace(
            self,
            arguments={**self.arguments, **arguments},
            normalization={**self.normalization, **normalization},
        )

    def metadata(self) -> dict[str, str]:
        """The metadata of the safetensors file."""
        return {_METADATA_KEY: json.dumps(asdict(self))}

    @classmethod
    def of(cls, metadata: Mapping[str, str]) -> Description | None:
        """Reads it from a file's metadata; None if the file is not of our writing.

        Raises:
            BackboneError: naming the field that is missing, unknown or of the wrong type; or if it is the header of a
                task or of a folded task.
        """
        if _METADATA_KEY not in metadata:
            return None
        try:
            fields = header_object(metadata[_METADATA_KEY])
            _refuse_others(fields)
            check_names(cls, fields)
        except ValueError as error:
            raise BackboneError(str(error)) from error
        return cls(**fields)


def _refuse_others(fields: Mapping[str, object]) -> None:
    """Raises ValueError, saying what it is, for the header of another file of ours or of another format."""
    if "adapter" in fields:
        raise ValueError("this is a task, not a backbone")
    if "folded" in fields:
        raise ValueError("this is a folded task, a checkpoint for stock timm, not the backbone of a task")
    if fields.get("format", FORMAT) != FORMAT:  # before its fields, which may well be others
        raise ValueError(f"the header is not of backbone format {FORMAT}")


def plain_arguments(arguments: Mapping[str, object]) -> dict[str, object]:
    """Arguments as a JSON file gives them back: a tuple, timm's habit for sizes, becomes a list.

    Raises:
        BackboneError: naming the argument that a JSON file cannot hold.
    """
    plain: dict[str, object] = {}
    for name, value in arguments.items():
        try:
            check_json(value, "it")
            plain[name] = json.loads(json.dumps(value))
        except (TypeError, ValueError) as error:
            raise BackboneError(
                f"the argument {name!r} should be numbers, text or lists, as a JSON file holds them: {error}"
            ) from error
    return plain


def check_normalization(normalization: Mapping[str, Any]) -> None:
    """Raises BackboneError unless these are a `mean` and a `std`, or one of them, of three values of 0 to 1."""
    for name, values in normalization.items():
        if name not in ("mean", "std"):
            raise BackboneError(f"the normalization has an unknown field {name!r}")
        numbers = isinstance(values, (list, tuple)) and all(isinstance(value, (int, float)) for value in values)
        if not numbers or len(values) != 3 or not all(map(is_finite, values)):
            raise BackboneError(f"{name} = {values} is not three finite numbers, one a channel")
        if not all(0 <= value <= 1 for value in values):
            raise BackboneError(f"{name} = {values} is not of pixels from 0 to 1: divide those of 0 to 255 by 255")
    try:
        check_precision(Preprocessing((1, 1), **normalization))
    except (ValueError, UnsupportedError) as error:
        raise BackboneError(str(error)) from error
