"""Builds an adapter or reducer from its kind and arguments, refusing by name what does not fit."""

from __future__ import annotations

import inspect
import math
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

from fpet.errors import UnsupportedError

T = TypeVar("T")

_INT64 = 2**63  # torch takes no integer beyond it where it computes with floating values


def build(registry: Mapping[str, type[T]], kind: str, *shape: object, arguments: Mapping[str, object]) -> T:
    """`registry[kind](*shape, **arguments)`, with the arguments checked against the signature.

    Raises:
        UnsupportedError: as `checked`, and for values that nothing can be made with.
    """
    method = checked(registry, kind, arguments)
    try:
        return method(*shape, **arguments)
    except (ValueError, RuntimeError, TypeError, OverflowError) as error:  # torch's words for numbers out of range
        given = ", ".join(f"{name} = {value!r}" for name, value in arguments.items())
        described = f"the arguments {given}" if given else "the default arguments"
        reason = str(error).partition("\n")[0]
        raise UnsupportedError(f"{kind}: {described} make no model: {reason}") from error


def checked(registry: Mapping[str, type[T]], kind: str, arguments: Mapping[str, object]) -> type[T]:
    """`registry[kind]`, which takes these arguments as far as its signature tells.

    Raises:
        UnsupportedError: for an unknown kind, an unknown or missing argument, or a value of the wrong type.
    """
    if kind not in registry:
        raise UnsupportedError(f"unknown kind {kind!r}; known are {', '.join(registry)}")
    method = registry[kind]
    parameters = keyword_parameters(method)
    hints = typing.get_type_hints(method.__init__)
    for name, value in arguments.items():
        if name not in parameters:
            raise UnsupportedError(f"{kind} has no argument {name!r}; it takes {', '.join(parameters) or 'none'}")
        if not _matches(value, hints[name]):
            raise UnsupportedError(f"{kind}: {name} = {value!r} is not of type {_name(hints[name])}")
    missing = [
        name
        for name, parameter in parameters.items()
        if parameter.default is inspect.Parameter.empty and name not in arguments
    ]
    if missing:
        raise UnsupportedError(f"{kind} needs the argument {missing[0]!r}")
    return method


def refuse_untrainable(kind: str, arguments: Mapping[str, object]) -> None:
    """Refuses what no training should start with, but a file may hold: adapters from elsewhere may scale by any number.

    Raises:
        UnsupportedError: for a scale that is not above 0 or not finite, or a dropout outside [0, 1).
    """
    for name, value in arguments.items():
        if not isinstance(value, (int, float)):
            continue  # of the wrong type, which `checked` says
        if name == "scale" and not 0 < value < math.inf:
            raise UnsupportedError(f"{kind}: scale = {value} should be above 0 and finite")
        if name == "dropout" and not 0 <= value < 1:
            raise UnsupportedError(f"{kind}: dropout = {value} should be in [0, 1)")


def keyword_parameters(method: type) -> dict[str, inspect.Parameter]:
    """What can be given to a method by name, as in task files and on the command line."""
    parameters = inspect.signature(method).parameters
    return {name: each for name, each in parameters.items() if each.kind is inspect.Parameter.KEYWORD_ONLY}


def _matches(value: object, expected: Any) -> bool:
    if isinstance(expected, types.UnionType):
        return any(_matches(value, option) for option in typing.get_args(expected))
    if typing.get_origin(expected) is list:
        (item,) = typing.get_args(expected)
        return isinstance(value, list) and all(_matches(element, item) for element in value)
    if isinstance(value, bool):
        return expected is bool
    if expected is float and isinstance(value, int):
        return -_INT64 <= value < _INT64
    return isinstance(value, expected)


def _name(expected: Any) -> str:
    return expected.__name__ if isinstance(expected, type) else str(expected)
