"""The JSON header in the metadata of our safetensors files, read strictly: no field is unknown, missing or mistyped."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterable
from typing import Any

from fpet.json_values import check_json, parse_json

HEADER = "the header"


def header_object(text: str) -> dict[str, Any]:
    """The fields of a header.

    Raises:
        ValueError: saying of the header that it is not JSON, nested too deeply, or not an object.
    """
    try:
        fields = parse_json(text)
    except ValueError as error:
        raise ValueError(f"{HEADER} is {error}") from error
    if not isinstance(fields, dict):
        raise ValueError(f"{HEADER} is not an object")
    return fields


def check_names(kind: Any, given: Iterable[str], where: str = HEADER) -> None:
    """Raises ValueError, naming the field, if one is given that a dataclass lacks, or one without a default is not."""
    names = set(given)
    fields = {item.name: item for item in dataclasses.fields(kind)}
    for name in given:
        if name not in fields:
            raise ValueError(f"{where} has an unknown field {name!r}")
    for name, item in fields.items():
        required = item.default is item.default_factory is dataclasses.MISSING
        if required and name not in names:
            raise ValueError(f"{where} lacks the field {name!r}")


def parse_fields(kind: Any, value: Any, where: str = HEADER) -> Any:
    """A JSON object as an instance of a dataclass.

    Raises:
        ValueError: naming the field that is unknown, missing, of the wrong type, or no finite number.
    """
    if not isinstance(value, dict):
        raise ValueError(f"{where} is not an object")
    check_names(kind, value, where)
    hints, place = typing.get_type_hints(kind), where.removeprefix("the ")
    return kind(**{name: _parse(hints[name], item, f"{place}.{name}") for name, item in value.items()})


def _parse(expected: Any, value: Any, where: str) -> Any:
    """`value` as an instance of the type `expected`: a dataclass, tuple, dict or scalar."""
    if dataclasses.is_dataclass(expected):
        return parse_fields(expected, value, where)
    origin, arguments = typing.get_origin(expected), typing.get_args(expected)
    if origin is tuple:
        if not isinstance(value, list):
            raise ValueError(f"{where} is not a list")
        if arguments[-1] is not Ellipsis and len(value) != len(arguments):
            raise ValueError(f"{where} has {len(value)} values instead of {len(arguments)}")
        return tuple(_parse(arguments[0], item, f"{where}[{i}]") for i, item in enumerate(value))
    scalar = origin or expected
    check_json(value, where)
    if scalar is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if not isinstance(value, scalar) or (isinstance(value, bool) and scalar is not bool):
        raise ValueError(f"{where} is not of type {scalar.__name__}")
    return value
