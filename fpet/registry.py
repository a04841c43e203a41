"""Builds an adapter or reducer from its kind and arguments, refusing by name what does not fit."""

from __future__ import annotations

import inspect
import math
import types
import typing
from collections.abc import Container, Iterator, Mapping
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeVar

import torch

from fpet.errors import UnsupportedError
from fpet.header import Method
from fpet.words import reason

T = TypeVar("T")

_INT64 = 2**63  # torch takes no integer beyond it where it computes with floating values
_FLOAT32 = 3.4028234663852886e38  # and no larger number as a factor


class Registry(Mapping[str, type[T]]):
    """Methods by kind: our own, then those of packages installed beside us, which name theirs as entry points.

    group: of the entry points; base: the class that each method derives from. A package is imported when one of its
    methods is asked for, as it may itself be what imports us.

    Raises:
        UnsupportedError: naming the package, when any kind but our own is looked for, if it has a kind that there is
            already; when its method is asked for, if that cannot be loaded, is no `base`, or has an argument that could
            not be read back from a task file.
    """

    def __init__(self, group: str, base: type[T], own: Mapping[str, type[T]]) -> None:
        self._group, self._base, self._own = group, base, own

    def __getitem__(self, kind: str) -> type[T]:
        return self._own[kind] if kind in self._own else self._load(self._installed[kind])

    def __contains__(self, kind: object) -> bool:
        return kind in self._own or kind in self._installed

    def __iter__(self) -> Iterator[str]:
        return iter((*self._own, *self._installed))

    def __len__(self) -> int:
        return len(self._own) + len(self._installed)

    @cached_property
    def _installed(self) -> dict[str, EntryPoint]:
        installed: dict[str, EntryPoint] = {}
        for point in sorted(entry_points(group=self._group)):
            if point.name in self._own or point.name in installed:
                by = _package(installed[point.name]) if point.name in installed else "fpet"
                raise UnsupportedError(f"{self._described(point)}: there is a {point.name!r} already, of {by}")
            installed[point.name] = point
        return installed

    def _load(self, point: EntryPoint) -> type[T]:
        try:
            with torch.device("cpu"):  # whoever asks may be making a model on the meta device
                method = point.load()
        except Exception as error:  # whatever a foreign package meets while it is imported
            why = f"{type(error).__name__}: {error}".partition("\n")[0]
            raise UnsupportedError(f"{self._described(point)} cannot be loaded: {why}") from error
        if not (isinstance(method, type) and issubclass(method, self._base)):
            raise UnsupportedError(f"{self._described(point)} is no {self._base.__name__}")
        try:
            _check_signature(method)
        except (TypeError, NameError) as error:
            raise UnsupportedError(f"{self._described(point)}: {error}") from error
        return method

    def _described(self, point: EntryPoint) -> str:
        return f"{point.value}, which {_package(point)} has as {point.name!r} of {self._group}"


def _check_signature(method: type[T]) -> None:
    """Raises TypeError or NameError unless `checked` can compare every argument's annotation with values of a task
    file.

    Else it would fail only when a task's file is read, after the training.
    """
    hints = typing.get_type_hints(method.__init__)
    for name, parameter in keyword_parameters(method).items():
        if name not in hints or not _storable(hints[name]):
            known = "bool, int, float, str, list, dict or a union of these"
            raise TypeError(f"the argument {name!r} is not annotated as what JSON holds: {known}")
        default = list(parameter.default) if isinstance(parameter.default, tuple) else parameter.default
        if default is not inspect.Parameter.empty and not _matches(default, hints[name]):
            raise TypeError(f"the default {name} = {default!r} is not of type {_name(hints[name])}")


def _storable(expected: Any) -> bool:
    """Whether values of a type come back from JSON as what they were."""
    if _is_union(expected) or typing.get_origin(expected) is list:
        return all(_storable(option) for option in typing.get_args(expected))
    return expected in (bool, int, float, str, list, dict, types.NoneType)


def _is_union(expected: Any) -> bool:
    return typing.get_origin(expected) in (types.UnionType, typing.Union)


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist else "an unnamed package"


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
        raise UnsupportedError(f"{kind}: {described} make no model: {reason(error)}") from error


def checked(registry: Mapping[str, type[T]], kind: str, arguments: Mapping[str, object]) -> type[T]:
    """`registry[kind]`, which takes these arguments as far as its signature tells.

    Raises:
        UnsupportedError: for an unknown kind, an unknown or missing argument, or a value of the wrong type or range.
    """
    if kind not in registry:
        raise UnsupportedError(
            f"unknown kind {kind!r}; known are {', '.join(registry)}, and what other packages bring once installed"
        )
    method = registry[kind]
    check_arguments(kind, method, arguments)
    return method


def check_arguments(kind: str, method: type[object], arguments: Mapping[str, object]) -> None:
    """Checks arguments against the signature of a method, or of another class, that messages call `kind`.

    Raises:
        UnsupportedError: for an unknown or missing argument, or a value of the wrong type.
    """
    parameters = keyword_parameters(method)
    hints = typing.get_type_hints(method.__init__)
    for name, value in arguments.items():
        if name not in parameters:
            raise UnsupportedError(f"{kind} has no argument {name!r}; it takes {', '.join(parameters) or 'none'}")
        if not _matches(value, hints[name]):
            raise UnsupportedError(f"{kind}: {name} = {value!r} is not of type {_name(hints[name])}")
        _refuse_beyond_float32(kind, name, value)
    if missing := missing_arguments(method, arguments):
        raise UnsupportedError(f"{kind} needs the argument {missing[0]!r}")


def missing_arguments(method: type, given: Container[str]) -> list[str]:
    """The arguments of a method that have no default and are not given."""
    return [
        name
        for name, parameter in keyword_parameters(method).items()
        if parameter.default is inspect.Parameter.empty and name not in given
    ]


def completed(registry: Mapping[str, type[T]], method: Method) -> Method:
    """The method with the defaults of those arguments that are not given, and whole numbers as floats where those are
    due; an unknown kind has none.

    Raises:
        UnsupportedError: if the method's package cannot be loaded.
    """
    if method.kind not in registry:
        return method
    made = registry[method.kind]
    hints = typing.get_type_hints(made.__init__)
    values = {name: each.default for name, each in keyword_parameters(made).items()} | method.arguments
    given = {name: value for name, value in values.items() if value is not inspect.Parameter.empty}
    floats = {name: float(value) for name, value in given.items() if hints.get(name) is float and type(value) is int}
    return Method(method.kind, given | floats)


def refuse_untrainable(kind: str, arguments: Mapping[str, object]) -> None:
    """Refuses arguments that no training should start with, though a task file may hold them: adapters from elsewhere
    may have any scale.

    Raises:
        UnsupportedError: for a scale that is not above 0, not finite or beyond float32, or a dropout outside [0, 1).
    """
    for name, value in arguments.items():
        if not isinstance(value, (int, float)):
            continue  # of the wrong type, which `checked` says
        if name == "scale" and not 0 < value < math.inf:
            raise UnsupportedError(f"{kind}: scale = {value} should be above 0 and finite")
        _refuse_beyond_float32(kind, name, value)
        if name == "dropout" and not 0 <= value < 1:
            raise UnsupportedError(f"{kind}: dropout = {value} should be in [0, 1)")


def _refuse_beyond_float32(kind: str, name: str, value: object) -> None:
    if isinstance(value, float) and abs(value) > _FLOAT32:
        raise UnsupportedError(f"{kind}: {name} = {value!r} is beyond float32")


def keyword_parameters(method: type) -> dict[str, inspect.Parameter]:
    """What can be given to a method by name, as in task files and on the command line."""
    parameters = inspect.signature(method).parameters
    return {name: each for name, each in parameters.items() if each.kind is inspect.Parameter.KEYWORD_ONLY}


def _matches(value: object, expected: Any) -> bool:
    if _is_union(expected):
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
