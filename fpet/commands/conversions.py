"""What `fpet convert` does, one function for each kind of input; each returns what to print of its output."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path

from fpet.backbone import Backbone, save_backbone
from fpet.commands import options
from fpet.convert import peft, to_tasks, transformers
from fpet.convert.catalog import Published, look_up
from fpet.convert.peft_writer import peft_files
from fpet.convert.published import published_bytes
from fpet.errors import TaskError, UnsupportedError
from fpet.files import read_lines, write_atomically, write_folder
from fpet.header import Method, TaskHeader
from fpet.task import Task


def from_published(arguments: argparse.Namespace) -> str:
    """A published file to a task."""
    published, backbone = _published(arguments), _named_backbone(arguments)
    supplement = _supplement(arguments)
    if published.classes is None and supplement.labels is None:
        raise UnsupportedError(
            f"{arguments.input}: a published file does not say its classes; give --labels or --classes"
        )
    return _summary(to_tasks.from_published(arguments.input, arguments.output, backbone, published, supplement))


def from_peft(arguments: argparse.Namespace) -> str:
    """A PEFT checkpoint to a task."""
    backbone = _named_backbone(arguments, peft.base_model(arguments.input))
    given = {} if arguments.interpolation is None else {"interpolation": arguments.interpolation}
    supplement = _supplement(arguments)
    return _summary(to_tasks.from_peft(arguments.input, arguments.output, backbone, supplement, **given))


def to_published(arguments: argparse.Namespace) -> str:
    """A task to a published file."""
    task = Task.load(arguments.input)
    data = published_bytes(task, options.backbone(arguments))
    write_atomically(arguments.output, data, TaskError)
    return f"{len(data)} bytes; scale, labels and preprocessing have no place in such a file"


def to_peft(arguments: argparse.Namespace) -> str:
    """A task to a PEFT checkpoint."""
    task = Task.load(arguments.input)
    files = peft_files(task, options.backbone(arguments), arguments.library)
    write_folder(arguments.output, files, TaskError)
    return f"{', '.join(sorted(files))}; labels, preprocessing and token reduction have no place in such a folder"


def from_transformers(arguments: argparse.Namespace) -> str:
    """A saved model of transformers to a backbone file."""
    backbone = transformers.read_transformers(arguments.input)
    provenance = {"source": f"transformers: {arguments.input.name}"}
    save_backbone(arguments.output, backbone, provenance=provenance)
    return f"{backbone.architecture} with {backbone.arguments}; {options.normalisation(backbone)}"


def _named_backbone(arguments: argparse.Namespace, base: str = "") -> Backbone:
    """--backbone, which has to be given: an adapter fits every backbone of its shape, and works with one.

    base: what the adapter says that it was trained on, or empty.
    """
    if arguments.backbone is None:
        named = f", which it calls {base!r}" if base else ""
        raise UnsupportedError(f"{arguments.input}: give the --backbone that this adapter was trained on{named}")
    return options.backbone(arguments)


def _published(arguments: argparse.Namespace) -> Published:
    """What the catalog says, or else the options; an option that is given prevails."""
    options_of = {"adapter": "kind"} | {name: name for name in ("dim", "scale", "bits", "head_bits", "classes")}
    values = {field: getattr(arguments, option) for option, field in options_of.items()}
    given = {field: value for field, value in values.items() if value is not None}
    if arguments.catalog is not None:
        return dataclasses.replace(look_up(arguments.catalog, arguments.input), **given)
    for name in ("adapter", "dim", "scale"):
        if getattr(arguments, name) is None:
            raise UnsupportedError(
                f"{arguments.input}: a published file does not say its {name}; give --{name} or --catalog"
            )
    return Published(**given)


def _supplement(arguments: argparse.Namespace) -> to_tasks.Supplement:
    """What the options say of the task."""
    labels: Path | None = arguments.labels
    return to_tasks.Supplement(
        name=arguments.name or "",
        labels=None if labels is None else tuple(line for _, line in read_lines(labels, TaskError)),
        reducer=Method(arguments.reducer or "none", arguments.reducer_arguments or {}),
    )


def _summary(header: TaskHeader) -> str:
    backbone = f"{header.backbone.architecture} {header.backbone.fingerprint[:12]}"
    return f"{header.adapter.kind} with {header.adapter.arguments}, {len(header.labels)} classes, on {backbone}"
