"""`fpet show`: all that a task file says of itself."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Iterator
from typing import Any

from fpet.commands.task_option import named_task
from fpet.task import Task
from fpet.tensor_names import dtype_name
from fpet.words import shown

_DESCRIPTION = """Prints what is in a task file: backbone, methods, labels, preprocessing, provenance with recipe and
accuracy, and its tensors. The file is read as strictly as for use; no backbone is needed."""


def add_command(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `show`."""
    parser = subparsers.add_parser("show", description=_DESCRIPTION)
    parser.set_defaults(run=run)
    parser.add_argument("task", metavar="TASK", help="name of an embedded task, or a file that ends in .safetensors")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(arguments: argparse.Namespace) -> int:
    """Reads and prints."""
    task = named_task(arguments.task)
    described = _described(task)
    if arguments.json:
        print(json.dumps(described))
        return 0
    lines = list(_lines(described))
    width = max(len(name) for name, _ in lines)
    print("\n".join(f"{name:{width}}  {value}".rstrip() for name, value in lines))
    return 0


def _described(task: Task) -> dict[str, Any]:
    tensors = {
        name: {"dtype": dtype_name(tensor.dtype), "shape": list(tensor.shape)}
        for name, tensor in sorted(task.tensors.items(), key=_place)
    }
    return {
        "file": str(task.path),
        "bytes": task.size,
        "digest": task.digest,
        **dataclasses.asdict(task.header),
        "tensors": tensors,
    }


def _place(item: tuple[str, object]) -> list[str]:
    """Sorts block 10 behind block 9."""
    return [part.zfill(4) if part.isdigit() else part for part in item[0].split(".")]


def _lines(values: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """A line a value, by its path of names."""
    for name, value in values.items():
        path = f"{prefix}{name}"
        if path.startswith("tensors."):
            yield path, f"{value['dtype']} {value['shape']}"
        elif isinstance(value, dict):
            yield from _lines(value, f"{path}.")
        elif isinstance(value, list | tuple):
            yield path, ", ".join(map(shown, value))
        else:
            yield path, "-" if value is None else shown(value)
