"""`fpet fold`: a task as a plain timm checkpoint."""

from __future__ import annotations

import argparse
from pathlib import Path

from fpet.commands import options
from fpet.commands.task_option import add_task, named_task
from fpet.folding import fold
from fpet.timm_checkpoint import creation, write_timm_checkpoint

_DESCRIPTION = """Writes the backbone with the task's adapter folded into it and the task's head as a checkpoint that
timm loads as it is, and prints how timm makes the model, with the preprocessing and the labels of the task. Token
reduction is no part of such a checkpoint: the answers are those of tokens=full."""


def add_command(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `fold`."""
    parser = subparsers.add_parser("fold", description=_DESCRIPTION)
    parser.set_defaults(run=run)
    add_task(parser)
    options.add_backbone(parser)
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="safetensors file to write")


def run(arguments: argparse.Namespace) -> int:
    """Folds and writes."""
    output: Path = arguments.output
    options.require_suffix(output, ".safetensors", "a folded task's name")  # timm would take another for a pickle
    options.refuse_existing(output)
    task = named_task(arguments.task)
    model = fold(task.build(options.backbone(arguments)))
    write_timm_checkpoint(output, task, model)
    print(f"{output}: {creation(output, task, model)}")
    return 0
