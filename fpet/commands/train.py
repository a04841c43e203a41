"""`fpet train`: fits one task and writes its file."""

from __future__ import annotations

import argparse
import dataclasses
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch

from fpet.backbone import Backbone
from fpet.commands import method_options, options
from fpet.commands.task_data import check_split
from fpet.commands.task_option import named_task
from fpet.commands.task_output import check_output
from fpet.commands.tell import tell
from fpet.errors import UnsupportedError
from fpet.hardware.allocator import keep_freed_memory
from fpet.hardware.precision import DTYPES, slowness
from fpet.header import TaskHeader
from fpet.linear import FULL_PRECISION
from fpet.locks import sole_writer
from fpet.quantize import BITS
from fpet.task import Task
from fpet.training.checkpoint import check_log
from fpet.training.class_weights import CLASS_WEIGHTS
from fpet.training.fit import Fitted, check_fit, checkpoints_of, fit
from fpet.training.parallel import Processes, joined, local_device
from fpet.training.recipe import Recipe
from fpet.training.start import kept_parts
from fpet.untrained import new_header
from fpet.words import count

_DESCRIPTION = """Fits an adapter, a token reduction and a head to the training images of a data set, with the backbone
frozen. The epoch, and if asked the adapter's scale, is chosen on the validation images; at the end the test images are
classified once and the accuracy is written into the task file. A killed run continues when the same command is given
again. The defaults are the recipe of the FPET paper, but that validation images choose the epoch and that pixels are
normalised as the backbone's were. Started by torchrun, several processes share each batch."""

# What a service of the folder serves is replaced at once, never half written.
_INSTEAD = "; to train a task anew that is served, name another folder's --output, and then move or PUT that file here"
_FEW = 100  # steps of a training, below which its learning rates hardly come to act
_CHOICES: Mapping[str, Sequence[Any]] = {"precision": tuple(DTYPES), "class_weights": CLASS_WEIGHTS}


def add_command(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `train`."""
    parser = subparsers.add_parser("train", description=_DESCRIPTION)
    parser.set_defaults(run=run)
    parser.add_argument("--name", required=True, help="name of the task: a-z, 0-9, '.', '_', '-'")
    parser.add_argument(
        "--output", type=Path, metavar="FILE", help="task file, NAME.safetensors (default: runs/NAME.safetensors)"
    )
    options.add_data(parser, required=True)
    options.add_backbone(parser)
    parser.add_argument(
        "--from",
        dest="start",
        metavar="T",
        help="task to begin with, a name or a file as for --task: with its adapter, and with its token reduction and "
        "head as far as they are the same (default: none)",
    )
    method_options.add_methods(parser, default="that of --from, or ")
    parser.add_argument(
        "--head-bits",
        type=int,
        choices=(*BITS, FULL_PRECISION),
        help=f"bits per weight of the head; below 32 it has no bias (default: those of --from, or {FULL_PRECISION})",
    )
    parser.add_argument(
        "--search-scale",
        type=_numbers,
        default=[],
        metavar="S,...",
        help="scales of the adapter: trains with each, and keeps the best on the validation images (default: none)",
    )
    parser.add_argument(
        "--tensorboard", type=Path, metavar="DIR", help="folder for a TensorBoard log beside the CSV (default: none)"
    )
    _add_recipe(parser.add_argument_group("recipe"))


def _add_recipe(group: argparse._ArgumentGroup) -> None:
    kinds = typing.get_type_hints(Recipe)
    for item in dataclasses.fields(Recipe):
        kind, *_ = typing.get_args(kinds[item.name]) or (kinds[item.name],)  # int, of what may be left out too
        group.add_argument(
            "--" + item.name.replace("_", "-"),
            type=kind,
            default=item.default,
            choices=_CHOICES.get(item.name),
            metavar=kind.__name__.upper(),
            help=f"{item.metadata['help']} (default: {item.metadata['default']})",
        )


def run(arguments: argparse.Namespace) -> int:
    """Trains, tests once, saves."""
    output = arguments.output or Path("runs", f"{arguments.name}.safetensors")
    check_output(output, arguments.name, ", or give --name")
    recipe = _recipe(arguments)
    keep_freed_memory()
    arguments.device = local_device(arguments.device)
    backbone = options.backbone(arguments)
    with ExitStack() as writing:  # held until the file is there, when the group has been left
        with joined(torch.device(arguments.device)) as group:
            if group.rank == 0:
                writing.enter_context(sole_writer(output))
                writing.enter_context(_told_if_interrupted(_checkpoints(arguments, output)))
            options.refuse_existing(output, _INSTEAD)
            fitted = _fit(arguments, output, backbone, recipe, group)
        if group.rank == 0:
            _save(output, fitted)
    return 0


def _fit(arguments: argparse.Namespace, output: Path, backbone: Backbone, recipe: Recipe, group: Processes) -> Fitted:
    scales = arguments.search_scale
    for path in _checkpoints(arguments, output):
        check_log(path)
    start = named_task(arguments.start) if arguments.start else None
    task = _new_task(arguments, backbone, start)
    # With any labels: what is wrong should show before data is read, which may take long.
    check_fit(task(("0", "1")), backbone, recipe, scales, start)
    if group.rank == 0:
        _warn(recipe, torch.device(arguments.device))
    dataset = options.dataset(arguments, arguments.data)
    steps = recipe.epochs * (len(dataset.train) // recipe.batch_size)
    if group.rank == 0 and 0 < steps < _FEW:
        tell(f"{count(steps, 'step')} in all will teach little: give more --epochs, or a smaller --batch-size")
    header, checkpoint, board = task(dataset.labels), _checkpoint(output), arguments.tensorboard
    if start is not None:
        check_split(start.header, dataset)
        if group.rank == 0:
            tell(f"begins with the {' and the '.join(kept_parts(header, start))} of {start.path}")
    return fit(
        header, backbone, dataset, recipe, checkpoint, scales=scales, tensorboard=board, group=group, start=start
    )


def _new_task(
    arguments: argparse.Namespace, backbone: Backbone, start: Task | None
) -> Callable[[tuple[str, ...]], TaskHeader]:
    """What makes the task's header of its labels; what the options do not say is as in `start`."""
    defaults = (start.header.adapter, start.header.reducer) if start else method_options.DEFAULTS
    adapter, reducer = method_options.methods(arguments, backbone.geometry.depth, defaults)
    bits = arguments.head_bits or (start.header.head.bits if start else FULL_PRECISION)

    def task(labels: tuple[str, ...]) -> TaskHeader:
        header = new_header(arguments.name, labels, backbone, adapter=adapter, reducer=reducer, head_bits=bits)
        return dataclasses.replace(header, preprocessing=start.header.preprocessing) if start else header

    return task


def _checkpoint(output: Path) -> Path:
    return output.with_suffix(".checkpoint")


def _checkpoints(arguments: argparse.Namespace, output: Path) -> list[Path]:
    return checkpoints_of(_checkpoint(output), arguments.search_scale)


def _warn(recipe: Recipe, device: torch.device) -> None:
    if recipe.caution:
        tell(f"{recipe.caution}; give fewer --warmup-epochs")
    if slow := slowness(recipe.precision, device):
        tell(f"{slow}; leave out --precision")


@contextmanager
def _told_if_interrupted(checkpoints: Sequence[Path]) -> Iterator[None]:
    """Says that the training can go on, if there is anything to go on from."""
    try:
        yield
    except KeyboardInterrupt:
        if any(path.exists() for path in checkpoints):
            tell("the same command goes on after the last epoch that was finished")
        raise


def _save(output: Path, fitted: Fitted) -> None:
    tested = fitted.save(output)
    scale = f"scale {fitted.header.adapter.arguments['scale']}, " if fitted.tried else ""
    balanced = "balanced " if fitted.recipe.balanced else ""
    print(
        f"{output}: {scale}epoch {fitted.trained.epoch} of {fitted.recipe.epochs}, "
        f"{balanced}validation accuracy {fitted.trained.accuracy:.4f}, "
        f"test accuracy {tested.accuracy:.4f} ({tested.tokens_in_words}), "
        f"{tested.accuracy_unreduced:.4f} without token reduction"
    )


def _recipe(arguments: argparse.Namespace) -> Recipe:
    try:
        return Recipe(**{item.name: getattr(arguments, item.name) for item in dataclasses.fields(Recipe)})
    except ValueError as error:
        raise UnsupportedError(str(error)) from error


def _numbers(text: str) -> list[float]:
    try:
        return [float(number) for number in text.split(",")]
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of numbers such as 0.1,1,10") from error
