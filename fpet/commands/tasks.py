"""`fpet tasks`: what task files there are."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from fpet.commands.table import table
from fpet.commands.tell import tell
from fpet.embedded import tasks_folder
from fpet.errors import TaskError
from fpet.provenance import stated_accuracy
from fpet.system_errors import os_errors_as
from fpet.task import Task

_DESCRIPTION = """Lists task files: name, adapter, token reduction, number of classes, size in bytes, and the accuracy
on test images, with and without token reduction, that was measured after training. The exit code is 1, with a line
on standard error, if a file is not a task or does not have the name of its task."""
_COLUMNS = ("name", "adapter", "reducer", "classes", "bytes", "accuracy", "accuracy_unreduced")
_FAILED = 1


def add_command(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `tasks`."""
    parser = subparsers.add_parser("tasks", description=_DESCRIPTION)
    parser.set_defaults(run=run)
    parser.add_argument(
        "--folder",
        type=Path,
        default=tasks_folder(),
        metavar="DIR",
        help="folder of .safetensors files (default: the embedded tasks)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON list")


def run(arguments: argparse.Namespace) -> int:
    """Lists the folder."""
    rows, failed = [], False
    for path in _files(arguments.folder):
        try:
            task = Task.load(path)
            rows.append(_row(task))
            if path.stem != task.header.name:
                raise TaskError(
                    f"{path}: holds the task {task.header.name!r}; a service takes it only in a file of that name"
                )
        except TaskError as error:
            tell(error)
            failed = True
    print(json.dumps(rows) if arguments.json else table(rows, _COLUMNS))
    return _FAILED if failed else 0


def _files(folder: Path) -> list[Path]:
    with os_errors_as(TaskError, f"{folder}: the folder cannot be read"):
        try:
            return sorted(path for path in folder.iterdir() if path.name.endswith(".safetensors"))
        except (FileNotFoundError, NotADirectoryError) as error:
            raise TaskError(f"there is no folder {folder}") from error


def _row(task: Task) -> dict[str, Any]:
    header = task.header
    return {
        "name": header.name,
        "adapter": header.adapter.kind,
        "reducer": header.reducer.kind,
        "classes": len(header.labels),
        "bytes": task.size,
        "accuracy": stated_accuracy(header, reduced=True),
        "accuracy_unreduced": stated_accuracy(header, reduced=False),
        "digest": task.digest,
    }
