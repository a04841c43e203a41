"""`fpet flops`: what a model computes for one image, with token reduction and without."""

from __future__ import annotations

import argparse
import dataclasses
import json
from typing import Any

from fpet.backbone import Backbone
from fpet.commands import method_options, options
from fpet.commands.table import table
from fpet.commands.task_option import named_task
from fpet.errors import UnsupportedError
from fpet.flops import Flops, Macs, flops, outline
from fpet.header import Method

_DESCRIPTION = """Counts the multiply-accumulates of one image by part, with token reduction and without, in the
convention of the FPET paper: those of matrix products and convolutions, and five for each element of a layer norm. No
weights are needed. The ideal speed-up is the ratio of the totals: what a machine would gain that did nothing else."""
_COLUMNS = ("part", "full", "reduced", "saving")
_GIGA = 1e9


def add_command(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `flops`."""
    parser = subparsers.add_parser("flops", description=_DESCRIPTION)
    parser.set_defaults(run=run)
    model = parser.add_mutually_exclusive_group(required=True)
    model.add_argument("--architecture", metavar="NAME", help="timm's name of a plain Vision Transformer")
    model.add_argument("--task", metavar="T", help="name of an embedded task, or a file that ends in .safetensors")
    parser.add_argument(
        "--architecture-arguments",
        type=options.keyword_arguments,
        default={},
        metavar="NAME=VALUE,...",
        help="how timm makes the architecture, such as img_size=384",
    )
    method_options.add_methods(parser, default="the task's, or ")
    parser.add_argument("--folded", action="store_true", help="with the adapter folded into the backbone")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(arguments: argparse.Namespace) -> int:
    """Counts and prints."""
    task = None if arguments.task is None else named_task(arguments.task).header
    if task is not None and arguments.architecture_arguments:
        raise UnsupportedError("--architecture-arguments: a task says itself how its backbone is made")
    if task is None:
        backbone = outline(arguments.architecture, arguments.architecture_arguments)
        defaults = method_options.DEFAULTS
    else:
        backbone = outline(task.backbone.architecture, task.backbone.arguments)
        defaults = task.adapter, task.reducer
    adapter, reducer = method_options.methods(arguments, backbone.geometry.depth, defaults)
    classes = {} if task is None else {"classes": len(task.labels)}
    counted = flops(backbone, adapter, reducer, folded=arguments.folded, **classes)
    if arguments.json:
        print(json.dumps(_report(backbone, adapter, reducer, arguments.folded, counted)))
    else:
        print(_table(counted))
        folded = " (folded)" if arguments.folded else ""
        tokens = f"{counted.tokens_in} -> {counted.tokens_out} tokens"
        print(f"GMACs an image of {backbone.architecture} with {adapter.kind}{folded} and {reducer.kind} ({tokens})")
        print(f"ideal speed-up {counted.speed_up:.3f}")
    return 0


def _table(counted: Flops) -> str:
    full, reduced = (_with_total(side) for side in (counted.full, counted.reduced))
    rows = [
        {
            "part": part,
            "full": f"{full[part] / _GIGA:.3f}",
            "reduced": f"{reduced[part] / _GIGA:.3f}",
            "saving": f"{1 - reduced[part] / full[part]:.1%}" if full[part] else None,
        }
        for part in full
    ]
    return table(rows, _COLUMNS)


def _with_total(macs: Macs) -> dict[str, int]:
    return {**dataclasses.asdict(macs), "total": macs.total}


def _report(backbone: Backbone, adapter: Method, reducer: Method, folded: bool, counted: Flops) -> dict[str, Any]:
    return {
        "architecture": backbone.architecture,
        "arguments": backbone.arguments,
        "adapter": dataclasses.asdict(adapter),
        "folded": folded,
        "reducer": dataclasses.asdict(reducer),
        "tokens_in": counted.tokens_in,
        "tokens_out": counted.tokens_out,
        "full": _with_total(counted.full),
        "reduced": _with_total(counted.reduced),
        "saving": counted.saving,
        "speed_up": counted.speed_up,
    }
