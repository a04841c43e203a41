"""`fpet convert`: files of other projects to task and backbone files, and back."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fpet.commands import conversions, options
from fpet.convert import peft, transformers
from fpet.convert.peft_writer import LIBRARIES
from fpet.convert.published import MATRICES
from fpet.errors import UnsupportedError
from fpet.preprocess import INTERPOLATIONS
from fpet.reducers import REDUCERS
from fpet.task import Task

_DESCRIPTION = """Converts, by what INPUT is: a published Bi-LoRA or Bi-AdaptFormer file (.bin) or a LoRA checkpoint of
Hugging Face PEFT (a folder) to a task file; a ViT or DeiT of Hugging Face transformers (a folder) to a backbone file; a
task file (.safetensors) to one of the first two, as --to says. A published file comes back byte for byte."""


@dataclass(frozen=True)
class _Conversion:
    """run: does it, and returns what to print of the output; options: those of the groups below that it reads.

    suffix: what its output's name ends in, by which this and other commands tell what a file is; empty if any will do.
    """

    run: Callable[[argparse.Namespace], str]
    options: frozenset[str] = frozenset()
    suffix: str = ""


_TASK = frozenset({"backbone", "name", "labels", "reducer", "reducer_arguments"})
_PUBLISHED = frozenset({"catalog", "adapter", "dim", "scale", "bits", "head_bits", "classes"})
_CONVERSIONS = {
    "published": _Conversion(conversions.from_published, _TASK | _PUBLISHED, ".safetensors"),
    "peft": _Conversion(conversions.from_peft, _TASK | {"interpolation"}, ".safetensors"),
    "transformers": _Conversion(conversions.from_transformers),
    "to published": _Conversion(conversions.to_published, frozenset({"backbone", "to"}), ".bin"),
    "to peft": _Conversion(conversions.to_peft, frozenset({"backbone", "to", "library"})),
}


def add_command(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `convert`."""
    parser = subparsers.add_parser("convert", description=_DESCRIPTION)
    parser.set_defaults(run=run)
    parser.add_argument("input", type=Path, metavar="INPUT", help="file or folder to convert")
    parser.add_argument("--output", type=Path, required=True, metavar="PATH", help="file or folder to write")
    options.add_backbone(parser, default="the embedded one; for an adapter from elsewhere it has to be given")
    back = parser.add_argument_group("from a task file")
    back.add_argument("--to", choices=("published", "peft"), help="what to write")
    back.add_argument("--library", choices=LIBRARIES, help="whose layers PEFT is for (default: as the task has them)")
    task = parser.add_argument_group("to a task file")
    task.add_argument("--name", help="name of the task (default: of OUTPUT)")
    task.add_argument("--labels", type=Path, metavar="FILE", help="a label a line (default: numbers from 0)")
    task.add_argument("--reducer", choices=tuple(REDUCERS), help="token reduction without weights (default: none)")
    task.add_argument(
        "--reducer-arguments",
        type=options.keyword_arguments,
        metavar="NAME=VALUE,...",
        help="such as block=6 (default: its own; block, from 0: the one half-way)",
    )
    _add_published(parser.add_argument_group("to a task file, from a published one"))
    images = parser.add_argument_group("to a task file, from PEFT")
    images.add_argument(
        "--interpolation",
        choices=INTERPOLATIONS,
        help="how images were resized (default: bicubic); they are normalised as the backbone says",
    )


def _add_published(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--catalog", type=Path, metavar="FILE", help="JSON list of files that says all that follows")
    group.add_argument("--adapter", choices=tuple(MATRICES), help="method")
    group.add_argument("--dim", type=options.positive, help="hidden width")
    group.add_argument("--scale", type=float, help="what multiplies the adapter's output; the authors chose it by task")
    group.add_argument("--bits", type=int, help="bits a weight (default: 1)")
    group.add_argument("--head-bits", type=int, help="bits a weight of the head: 32, or 1 for bihead (default: 32)")
    group.add_argument("--classes", type=options.positive, help="how many classes (default: as many as labels)")


def run(arguments: argparse.Namespace) -> int:
    """Converts and says what was written."""
    conversion = _CONVERSIONS[_kind(arguments)]
    every = frozenset[str]().union(*(known.options for known in _CONVERSIONS.values()))
    for name in sorted(every - conversion.options):
        if getattr(arguments, name) is not None:
            raise UnsupportedError(f"--{name.replace('_', '-')} has no meaning for {arguments.input}")
    if conversion.suffix:
        options.require_suffix(arguments.output, conversion.suffix, "the name of what this writes")
    options.refuse_existing(arguments.output)
    print(f"{arguments.output}: {conversion.run(arguments)}")
    return 0


def _kind(arguments: argparse.Namespace) -> str:
    path: Path = arguments.input
    if path.suffix == ".safetensors":
        if arguments.to is None:
            Task.load(path)  # says what the file is, if it is none
            raise UnsupportedError(f"{path}: give --to published or --to peft")
        return f"to {arguments.to}"
    if path.suffix == ".bin":
        return "published"
    for kind, config in (("peft", peft.CONFIG), ("transformers", transformers.CONFIG)):
        if (path / config).exists():
            return kind
    if not path.exists():
        raise UnsupportedError(f"{path}: there is no such file or folder")
    peft.refuse_folder_above(path)
    raise UnsupportedError(
        f"{path}: neither a .bin or .safetensors file nor a folder with {peft.CONFIG} or {transformers.CONFIG}"
    )
