"""Which data a command looks at for a task, and whether they are split as in its training."""

from __future__ import annotations

import argparse

from fpet.commands import options
from fpet.commands.task_option import add_task
from fpet.commands.tell import tell
from fpet.data import SOURCES, Dataset
from fpet.errors import DataError
from fpet.header import TaskHeader
from fpet.provenance import data_name, other_choices, trained_on_files
from fpet.task import Task


def add_task_and_data(parser: argparse.ArgumentParser) -> None:
    """Adds --task, --data, --backbone and the options of each, and --batch-size."""
    add_task(parser)
    options.add_data(parser, required=False, default=" (default: the named data that the task was trained on)")
    options.add_backbone(parser)
    parser.add_argument(
        "--batch-size", type=options.positive, default=64, help="images a forward (default: %(default)s)"
    )


def data_of(task: Task, arguments: argparse.Namespace, *, test_alone: bool = False) -> Dataset:
    """--data, or else the named source that the task was trained on; test_alone: as of `load_dataset`.

    Raises:
        DataError: also if the task was trained on a folder, even if that has the name of a source.
    """
    if arguments.data is not None:
        return options.dataset(arguments, arguments.data, test_alone=test_alone)
    name = data_name(task.header)
    if name not in SOURCES:
        raise DataError(f"{task.path}: the task was not trained on a named source; say which --data to take")
    dataset = options.source(arguments, name)
    if not trained_on_files(task.header, dataset):
        raise DataError(
            f"{task.path}: the task was trained on data called {name!r}, but not on those of the named source; say "
            "which --data to take"
        )
    return dataset


def check_split(header: TaskHeader, dataset: Dataset) -> None:
    """Raises DataError if the data are split otherwise than in the training; notes a random split of other files."""
    if not trained_on_files(header, dataset):
        if dataset.drawn:  # a copy of the folder, less a file, or another version of a package
            files = f"the files in {dataset.name} are not those that {header.name} was trained on, and they are"
            if not data_name(header):  # as of one that was converted
                files = f"{header.name} does not say what it was trained on, and the files in {dataset.name} are"
            tell(f"{files} split at random: it may have been trained on some of those that are to judge it now")
    elif other := other_choices(header, dataset):
        trained = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in other.items())
        raise DataError(
            f"{header.name} was trained on another split of {dataset.name}, so that it would be judged by "
            f"images that it was trained on: say {trained}"
        )
