"""The task that a command is given: an embedded one by its name, or a file. No backbone is needed, nor timm."""

from __future__ import annotations

import argparse
from pathlib import Path

from fpet.embedded import task_path
from fpet.errors import TaskError
from fpet.task import Task


def add_task(parser: argparse.ArgumentParser) -> None:
    """Adds --task, which `named_task` takes."""
    parser.add_argument(
        "--task", required=True, metavar="T", help="name of an embedded task, or a file that ends in .safetensors"
    )


def named_task(given: str) -> Task:
    """Loads the task that an option names.

    Raises:
        TaskError: if the file cannot be used, or there is no embedded task of that name; a file of the name that
            `fpet train` gives is then pointed out.
    """
    path = Path(given)
    if path.suffix == ".safetensors":
        return Task.load(path)
    try:
        embedded = task_path(given)
    except TaskError as error:
        for trained in (Path(f"{path}.safetensors"), Path("runs", f"{path}.safetensors")):
            if trained in trained.parent.glob("*.safetensors"):  # which no name is too long for
                raise TaskError(f"{error}; to use the file {trained}, give that in its place") from error
        raise
    return Task.load(embedded)
