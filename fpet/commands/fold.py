"""`fpet fold`: a task as a plain timm checkpoint."""

from __future__ import annotations

import argparse
from pathlib import Path

from fpet.backbone import NORM_EPS
from fpet.commands import options
from fpet.errors import TaskError, UnsupportedError
from fpet.files import write_safetensors
from fpet.fold import fold, timm_state

_DESCRIPTION = """Writes the backbone with the task's adapter folded into it and the task's head as a checkpoint that
timm loads as it is. Token reduction is no part of such a checkpoint: the answers are those of tokens=full."""


def add_command(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `fold`."""
    parser = subparsers.add_parser("fold", help="write a task as a plain timm checkpoint", description=_DESCRIPTION)
    parser.set_defaults(run=run)
    options.add_task(parser)
    options.add_backbone(parser)
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="safetensors file to write")


def run(arguments: argparse.Namespace) -> int:
    """Folds and writes."""
    output: Path = arguments.output
    if output.suffix != ".safetensors":  # timm would take it for a pickle
        raise UnsupportedError(f"{output}: a folded task's name ends in .safetensors")
    options.refuse_existing(output)
    task = options.task(arguments)
    model = fold(task.build(options.backbone(arguments), device=arguments.device))
    write_safetensors(output, timm_state(model), {"architecture": model.backbone.architecture}, TaskError)
    keywords = {"num_classes": len(task.header.labels), **model.backbone.arguments}
    given = ", ".join(_keyword(name, value) for name, value in keywords.items())
    print(f"{output}: timm.create_model({model.backbone.architecture!r}, checkpoint_path={str(output)!r}, {given})")
    return 0


def _keyword(name: str, value: object) -> str:
    if name == NORM_EPS:
        return f"norm_layer=functools.partial(timm.layers.LayerNorm, eps={value!r})"
    return f"{name}={value!r}"
