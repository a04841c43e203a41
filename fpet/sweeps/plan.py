"""A plan of training runs, methods x data x seeds, as a TOML file says it."""

from __future__ import annotations

import dataclasses
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fpet.data import SOURCES, Reading
from fpet.errors import FpetError, UnsupportedError
from fpet.files import read_bytes
from fpet.header import Method
from fpet.registry import check_arguments, keyword_parameters
from fpet.training.recipe import Recipe

_PLAN = ("data", "seeds", "recipe", "method")
_TABLES = ("adapter_arguments", "reducer_arguments", "recipe")  # of a method
_LISTS = {
    "data": 'a list of names, folders and tables, such as data = ["digits", { folder = "lists/pets", shots = 4 }]',
    "seeds": "a list of whole numbers, such as seeds = [0, 1]",
    "method": "a list of tables: write each under [[method]], in two pairs of brackets",
}


@dataclass(frozen=True, kw_only=True)
class Entry:
    """The plain values of a `[[method]]`; its tables are `_TABLES`."""

    name: str
    adapter: str = "adaptformer"
    reducer: str = "bdm"
    head_bits: int = 32
    search_scale: list[float] = dataclasses.field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class DataEntry:
    """The plain values of a table in `data`: a folder, and fields of `Reading`."""

    folder: str
    shots: int | None = None
    shots_seed: int | None = None
    split_seed: int | None = None
    skip_broken: bool = False


@dataclass(frozen=True)
class PlannedData:
    """A column of the table. source: as of `load_dataset`, a named source or a folder."""

    source: str
    reading: Reading

    @property
    def label(self) -> str:
        """The source and what is said about reading it, such as `lists/pets shots=4`."""
        said = {name: value for name, value in dataclasses.asdict(self.reading).items() if value not in (None, False)}
        return " ".join([self.source, *(f"{name}={value}" for name, value in said.items())])


@dataclass(frozen=True)
class PlannedMethod:
    """A row of the table. recipe: but for its seed; scales: to choose from on validation images, if there are any."""

    name: str
    adapter: Method
    reducer: Method
    head_bits: int
    scales: tuple[float, ...]
    recipe: Recipe


@dataclass(frozen=True)
class Plan:
    """What is to be trained: every method on every data set with every seed."""

    data: tuple[PlannedData, ...]
    seeds: tuple[int, ...]
    methods: tuple[PlannedMethod, ...]


def load_plan(path: Path) -> Plan:
    """Reads a plan strictly.

    `data` and `seeds` are lists; a data set is a source's name or a folder, or a table such as
    `{ folder = "lists/pets", shots = 4, shots_seed = 1 }` with fields of `Reading`. `[recipe]` holds numbers
    of `Recipe` for all; each `[[method]]` has a name and may have adapter, adapter_arguments, reducer,
    reducer_arguments, head_bits, search_scale and a recipe of its own on top.

    Raises:
        UnsupportedError: naming the file and what is missing, unknown, of the wrong type, out of its range, empty or
            there twice. Arguments of adapters and reducers need only be of types that some method could take.
    """
    data = read_bytes(path, UnsupportedError)
    try:
        return _plan(tomllib.loads(data.decode()))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UnsupportedError(f"{path}: not a TOML file: {error}") from error
    except (ValueError, FpetError) as error:
        raise UnsupportedError(f"{path}: {error}") from error


def _plan(table: Mapping[str, Any]) -> Plan:
    for name in table:
        if name not in _PLAN:
            raise ValueError(f"unknown {name!r}; a plan has {', '.join(_PLAN)}")
    recipe = _table(table, "recipe")
    methods = tuple(_method(entry, recipe) for entry in _list(table, "method", dict))
    _distinct("method", [method.name for method in methods])
    data = tuple(_data(entry) for entry in _list(table, "data", str, dict))
    _distinct("data", [planned.label for planned in data])
    seeds = _distinct("seeds", _list(table, "seeds", int))
    for seed in seeds:
        Recipe(seed=seed)  # refuses one out of range
    return Plan(data, seeds, methods)


def _data(entry: str | Mapping[str, Any]) -> PlannedData:
    if isinstance(entry, str):
        return PlannedData(entry, Reading())
    check_arguments("data", DataEntry, entry)
    values = dataclasses.asdict(DataEntry(**entry))
    folder = values.pop("folder")
    return PlannedData(f"./{folder}" if folder in SOURCES else folder, Reading(**values))


def _method(entry: Mapping[str, Any], shared: Mapping[str, Any]) -> PlannedMethod:
    known = [*keyword_parameters(Entry), *_TABLES]
    for name in entry:
        if name not in known:
            raise ValueError(f"method has no argument {name!r}; it takes {', '.join(known)}")
    tables = {name: _table(entry, name) for name in _TABLES}
    plain = {name: value for name, value in entry.items() if name not in tables}
    check_arguments("method", Entry, plain)
    values = Entry(**plain)
    if not values.name.strip() or not values.name.isprintable():
        raise ValueError(f"name = {values.name!r} should be text, without line breaks and other control characters")
    arguments = {**shared, **tables["recipe"]}
    if "seed" in arguments:
        raise ValueError("a recipe has no seed here: the plan's seeds are for all")
    for name in ("adapter_arguments", "reducer_arguments"):
        _refuse_dates(f"{values.name}: {name}", tables[name])
    check_arguments("recipe", Recipe, arguments)
    try:
        recipe = Recipe(**arguments)
    except ValueError as error:
        raise ValueError(f"{values.name}: {error}") from error
    return PlannedMethod(
        name=values.name,
        adapter=Method(values.adapter, tables["adapter_arguments"]),
        reducer=Method(values.reducer, tables["reducer_arguments"]),
        head_bits=values.head_bits,
        scales=tuple(map(float, values.search_scale)),
        recipe=recipe,
    )


def _refuse_dates(where: str, arguments: Mapping[str, Any]) -> None:
    """TOML has dates and times; methods take what a task file can hold, which is JSON."""
    for name, value in arguments.items():
        try:
            json.dumps(value)
        except TypeError as error:
            raise ValueError(f"{where}: {name} = {value} is a date or time, which no method takes") from error


def _table(table: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = table.get(name, {})
    if not isinstance(value, dict):
        raise ValueError(f"{name} = {value!r} is not a table")
    return value


def _list(table: Mapping[str, Any], name: str, *kinds: type) -> list[Any]:
    value = table.get(name, [])
    # A truth value is an integer to Python, not to TOML.
    if not isinstance(value, list) or any(type(item) not in kinds for item in value):
        raise ValueError(f"{name} is not {_LISTS[name]}")
    if not value:
        raise ValueError(f"{name} is empty")
    return value


def _distinct(name: str, values: list[Any]) -> tuple[Any, ...]:
    for value in values:
        if values.count(value) > 1:
            raise ValueError(f"{name} has {value!r} twice")
    return tuple(values)
