"""Reads JSON, and refuses what it can hold and programs cannot use: infinite numbers (`1e999`), half characters, deep
nesting.
"""

from __future__ import annotations

import json
import math

_DEEPEST = 32
_SHOWN = 50  # characters of a name in a message


def parse_json(text: str | bytes) -> object:
    """The value that a JSON text is.

    Raises:
        ValueError: saying that it is "not JSON", with the reason, or "nested too deeply"; if an object has a field
            twice, as programs differ in which of them they take.
    """
    try:
        return json.loads(text, object_pairs_hook=_object)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    except ValueError as error:  # also of bytes that are no text
        raise ValueError(f"not JSON: {error}") from error


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    fields: dict[str, object] = {}
    for name, value in pairs:
        if name in fields:
            raise ValueError(f"the field {name[:_SHOWN]!r} is there twice")
        fields[name] = value
    return fields


def is_finite(number: float) -> bool:
    """Whether it is finite as a float."""
    try:
        return math.isfinite(number)
    except OverflowError:  # a whole number beyond any float
        return False


def check_json(value: object, where: str, depth: int = 0) -> None:
    """Checks that any program could read a JSON value.

    Raises:
        ValueError: naming the place below `where`, if a number is not finite as a float, a text is not Unicode (half of
            a surrogate pair), lists and objects lie too deep in each other, or it is no JSON value at all.
    """
    if depth > _DEEPEST:
        raise ValueError(f"{where} lies too deep: there are at most {_DEEPEST} lists and objects in each other")
    if isinstance(value, dict):
        for name, item in value.items():
            _check_text(name, f"the name of a field of {where}")
            check_json(item, f"{where}.{name}", depth + 1)
    elif isinstance(value, (list, tuple)):
        for i, item in enumerate(value):
            check_json(item, f"{where}[{i}]", depth + 1)
    elif isinstance(value, str):
        _check_text(value, where)
    elif isinstance(value, (int, float)):
        if not is_finite(value):
            raise ValueError(f"{where} is not finite")
    elif value is not None:
        raise ValueError(f"{where} is of type {type(value).__name__}, which JSON does not hold")


def _check_text(text: object, where: str) -> None:
    if not isinstance(text, str):
        raise ValueError(f"{where} is no text: {text!r}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{where} is no text in Unicode: {text!r}") from error
