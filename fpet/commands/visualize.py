"""`fpet visualize`: which patches of an image merged."""

from __future__ import annotations

import argparse
import io
import os
from collections.abc import Sequence
from pathlib import Path

import torch

from fpet.commands import options
from fpet.commands.task_option import add_task, named_task
from fpet.data.pictures import ImageFiles
from fpet.errors import ImageError, UnsupportedError
from fpet.files import write_atomically
from fpet.reducers.none import NoReduction
from fpet.visualize import figure

_DESCRIPTION = """Draws a PNG with a row for each image: the image as the task sees it, the patches that its token
reduction merged, in their mean colour, and those that ToMe merges on the same backbone and adapter down to as many
tokens."""


def add_command(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `visualize`."""
    parser = subparsers.add_parser("visualize", description=_DESCRIPTION)
    parser.set_defaults(run=run)
    parser.add_argument("images", type=Path, nargs="+", metavar="IMAGE", help="any still picture that Pillow reads")
    add_task(parser)
    options.add_backbone(parser)
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FILE",
        help="PNG file to write (default: the first IMAGE's name, *.merged.png)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Draws and writes."""
    first: Path = arguments.images[0]
    output: Path = arguments.output or Path(f"{first.stem}.merged.png")  # not beside it: that may be a data set
    if output.suffix.lower() != ".png":
        raise UnsupportedError(f"{output}: the picture is a PNG; name a file that ends in .png")
    if os.path.realpath(output) in map(os.path.realpath, arguments.images):
        raise UnsupportedError(f"{output}: this is the image itself; name another --output")
    options.refuse_existing(output)
    _refuse_folders(arguments.images)
    task = named_task(arguments.task)
    header = task.header
    files = ImageFiles(tuple(arguments.images))
    pixels = [header.preprocessing.resize(files[i]) for i in range(len(files))]
    model = task.build(options.backbone(arguments))
    if isinstance(model.reducer, NoReduction):
        raise UnsupportedError(f"{task.path}: the task keeps all of its tokens; nothing merges")
    picture = figure(header.reducer.kind, model, torch.stack(pixels), header.preprocessing)
    buffer = io.BytesIO()
    picture.save(buffer, "PNG", optimize=True)
    write_atomically(output, buffer.getvalue(), ImageError)
    print(f"{output}: {picture.width} x {picture.height} pixels")
    return 0


def _refuse_folders(images: Sequence[Path]) -> None:
    for path in images:
        if path.is_dir():
            raise UnsupportedError(f"{path}: this is a folder; name the image files in it, such as {path}/*")
