"""Options that several commands share."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from fpet.backbone import Backbone, load_backbone
from fpet.data import SOURCES, Dataset, load_dataset
from fpet.errors import UnsupportedError
from fpet.task import Task
from fpet.weights import default_backbone, task_path

Value = int | float | bool | str | list[int]

_DATA = f"{', '.join(SOURCES)}, or a folder with train/, val/ and test/, each with one folder of images a class"


def add_data(parser: argparse.ArgumentParser, *, required: bool, default: str = "") -> None:
    """Adds --data, --data-folder and --cache, which `dataset` reads."""
    parser.add_argument("--data", required=required, metavar="DATA", help=_DATA + default)
    parser.add_argument(
        "--data-folder", type=Path, metavar="DIR", help="where the files of the named DATA lie (default: look, fetch)"
    )
    parser.add_argument(
        "--cache", type=Path, metavar="DIR", help="folder to keep fetched data in (default: ~/.cache/fpet)"
    )


def add_backbone(parser: argparse.ArgumentParser) -> None:
    """Adds --backbone and --device, which `backbone` reads."""
    parser.add_argument(
        "--backbone",
        type=Path,
        default=default_backbone(),
        metavar="FILE",
        help="safetensors file of the frozen Vision Transformer (default: the embedded one)",
    )
    parser.add_argument("--device", default="cpu", help="torch device, cpu or cuda[:N] (default: %(default)s)")


def add_task(parser: argparse.ArgumentParser) -> None:
    """Adds --task, which `task` reads."""
    parser.add_argument(
        "--task", required=True, metavar="T", help="name of an embedded task, or a file that ends in .safetensors"
    )


def task(arguments: argparse.Namespace) -> Task:
    """Loads --task."""
    path = Path(arguments.task)
    return Task.load(path if path.suffix == ".safetensors" else task_path(arguments.task))


def dataset(arguments: argparse.Namespace, data: str) -> Dataset:
    """Loads `data` as --data-folder and --cache say."""
    return load_dataset(data, arguments.data_folder, arguments.cache)


def backbone(arguments: argparse.Namespace) -> Backbone:
    """Loads --backbone onto --device.

    Raises:
        BackboneError: if the file cannot be used.
        UnsupportedError: if there is no such device.
    """
    loaded = load_backbone(arguments.backbone)
    try:
        loaded.vit.to(arguments.device)
    except (RuntimeError, AssertionError) as error:
        raise UnsupportedError(f"no device {arguments.device!r}: {str(error).splitlines()[0]}") from error
    return loaded


def positive(text: str) -> int:
    """An integer above 0."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return value


def keyword_arguments(text: str) -> dict[str, Value]:
    """`dim=8,block=4+8` -> {"dim": 8, "block": [4, 8]}; `true` and `false` are truth values, other words stay text."""
    arguments: dict[str, Value] = {}
    for item in filter(None, text.split(",")):
        name, equals, value = item.partition("=")
        if not name or not equals or name in arguments:
            raise argparse.ArgumentTypeError(f"{item!r} is not a new NAME=VALUE")
        arguments[name] = _value(value)
    return arguments


def _value(text: str) -> Value:
    if re.fullmatch(r"\d+(\+\d+)+", text):
        return [int(part) for part in text.split("+")]
    if text in ("true", "false"):
        return text == "true"
    if re.fullmatch(r"-?\d+", text):
        return int(text)
    try:
        return float(text)
    except ValueError:
        return text
