"""JSON files of other projects, read with the types that their fields should have."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from fpet.errors import FpetError
from fpet.files import read_bytes
from fpet.json_values import is_finite, parse_json

T = TypeVar("T")


@dataclass(frozen=True)
class Fields:
    """A JSON object and where it comes from; whatever is wrong with it is raised as `error`."""

    values: dict[str, Any]
    origin: str
    error: type[FpetError]

    @classmethod
    def read(cls, path: Path, error: type[FpetError]) -> Fields:
        """Reads a file that holds one object."""
        return cls.of(read_json(path, error), str(path), error)

    @classmethod
    def of(cls, value: object, origin: str, error: type[FpetError]) -> Fields:
        """Wraps a value that should be an object."""
        if not isinstance(value, dict):
            raise error(f"{origin}: not a JSON object")
        return cls(value, origin, error)

    def get(self, name: str, kind: type[T], default: T | None = None) -> T:
        """The field's value, or the default if there is one; a whole number is a float too, a truth value no number.

        Raises:
            `error`: if it is missing, of another type, or a number that is not finite as a float.
        """
        value = self.values.get(name, default)
        if name not in self.values and default is None:
            raise self.error(f"{self.origin}: the field {name!r} is missing")
        if isinstance(value, (int, float)) and not is_finite(value):
            raise self.error(f"{self.origin}: {name} is not finite")
        if kind is float and type(value) is int:
            value = float(value)
        if type(value) is not kind:
            raise self.error(f"{self.origin}: {name} = {value!r} is not of type {kind.__name__}")
        return value


def read_json(path: Path, error: type[FpetError]) -> object:
    """The content of a JSON file."""
    data = read_bytes(path, error)
    try:
        return parse_json(data)
    except ValueError as cause:
        raise error(f"{path}: {cause}") from cause
