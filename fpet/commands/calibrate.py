"""`fpet calibrate`: probabilities of a task that say how often it is right."""

from __future__ import annotations

import argparse
from pathlib import Path

from fpet.commands import options
from fpet.commands.task_data import add_task_and_data, check_split, data_of
from fpet.commands.task_option import named_task
from fpet.commands.task_output import check_output
from fpet.task import save_tensors
from fpet.temperature import calibrate
from fpet.words import count

_DESCRIPTION = """Divides the head of a task by a temperature, which is fitted to the validation images of a data set,
so that its probabilities say how often its answers are right. The answers, their order and what they cost stay. `fpet
evaluate` tells on the test images what it has gained."""


def add_command(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `calibrate`."""
    parser = subparsers.add_parser("calibrate", description=_DESCRIPTION)
    parser.set_defaults(run=run)
    add_task_and_data(parser)
    parser.add_argument(
        "--output",
        type=Path,
        required=True,
        metavar="FILE",
        help="task file to write, NAME.safetensors in another folder",
    )


def run(arguments: argparse.Namespace) -> int:
    """Fits and writes."""
    output: Path = arguments.output
    task = named_task(arguments.task)
    check_output(output, task.header.name)
    options.refuse_existing(output)
    backbone = options.backbone(arguments)
    task.build(backbone)  # what is wrong with it should show before all pictures are decoded
    dataset = data_of(task, arguments)
    check_split(task.header, dataset)
    found = calibrate(task, backbone, dataset, arguments.batch_size)
    save_tensors(output, found.header, found.tensors, backbone)
    print(
        f"{output}: temperature {found.temperature:.4g}; cross-entropy of {count(found.images, 'validation image')} "
        f"{found.loss_before:.4f} before, {found.loss:.4f} after"
    )
    return 0
