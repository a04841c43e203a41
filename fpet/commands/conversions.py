"""What `fpet convert` does, one function for each kind of input; each returns what to print of its output."""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
from pathlib import Path

from fpet.backbone import Backbone, save_backbone
from fpet.commands import options
from fpet.convert import peft, transformers
from fpet.convert.catalog import Published, look_up
from fpet.convert.peft_writer import write_peft
from fpet.convert.published import decode, encode
from fpet.errors import TaskError, UnsupportedError
from fpet.files import read_bytes, read_lines, read_regular, write_atomically, write_folder
from fpet.header import BackboneRef, Method, TaskHeader
from fpet.preprocess import Preprocessing
from fpet.task import Task, blueprint, save_tensors
from fpet.untrained import at_middle_block, preprocessing_of


def from_published(arguments: argparse.Namespace) -> str:
    """A published file to a task. Its images had values from 0 to 1, not normalised."""
    path: Path = arguments.input
    data = read_regular(path, TaskError)
    entry = _entry(arguments)
    if (entry.classes or 0) > 8 * len(data):  # each would get a label before the length is compared
        raise TaskError(f"{path}: {len(data)} bytes cannot hold a head of {entry.classes} classes")
    backbone = _named_backbone(arguments)
    preprocessing = dataclasses.replace(preprocessing_of(backbone), mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))
    header = _header(arguments, backbone, entry, preprocessing, data)
    try:
        save_tensors(arguments.output, header, decode(data, header, backbone), backbone)
    except ValueError as error:
        raise TaskError(f"{path}: {error}") from error
    return _summary(header)


def from_peft(arguments: argparse.Namespace) -> str:
    """A PEFT checkpoint to a task."""
    folder: Path = arguments.input
    backbone = _named_backbone(arguments, peft.base_model(folder))
    found = peft.read_peft(folder, backbone)
    preprocessing = dataclasses.replace(preprocessing_of(backbone), interpolation=arguments.interpolation or "bicubic")
    data = read_bytes(folder / peft.WEIGHTS, TaskError)
    header = _header(arguments, backbone, found, preprocessing, data)
    try:
        save_tensors(arguments.output, header, found.tensors, backbone)
    except ValueError as error:
        raise TaskError(f"{folder}: {error}") from error
    return _summary(header)


def to_published(arguments: argparse.Namespace) -> str:
    """A task to a published file."""
    task = Task.load(arguments.input)
    data = encode(task, options.backbone(arguments))
    write_atomically(arguments.output, data, TaskError)
    return f"{len(data)} bytes; scale, labels and preprocessing have no place in such a file"


def to_peft(arguments: argparse.Namespace) -> str:
    """A task to a PEFT checkpoint."""
    task = Task.load(arguments.input)
    files = write_peft(task, options.backbone(arguments), arguments.library)
    write_folder(arguments.output, files, TaskError)
    return f"{', '.join(sorted(files))}; labels, preprocessing and token reduction have no place in such a folder"


def from_transformers(arguments: argparse.Namespace) -> str:
    """A saved model of transformers to a backbone file."""
    backbone = transformers.read_transformers(arguments.input)
    provenance = {"source": f"transformers: {arguments.input.name}"}
    save_backbone(arguments.output, backbone.vit, backbone.architecture, backbone.arguments, provenance)
    return f"{backbone.architecture} with {backbone.arguments}; {options.normalisation(backbone)}"


def _named_backbone(arguments: argparse.Namespace, base: str = "") -> Backbone:
    """--backbone, which has to be given: an adapter fits every backbone of its shape, and works with one.

    base: what the adapter says that it was trained on, or empty.
    """
    if arguments.backbone is None:
        named = f", which it calls {base!r}" if base else ""
        raise UnsupportedError(f"{arguments.input}: give the --backbone that this adapter was trained on{named}")
    return options.backbone(arguments)


def _entry(arguments: argparse.Namespace) -> Published:
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


def _header(
    arguments: argparse.Namespace,
    backbone: Backbone,
    source: Published | peft.PeftTask,
    preprocessing: Preprocessing,
    data: bytes,
) -> TaskHeader:
    path, depth = arguments.input, backbone.geometry.depth
    try:
        header = TaskHeader(
            name=arguments.name or arguments.output.stem,
            backbone=BackboneRef(backbone.architecture, backbone.arguments, backbone.fingerprint),
            adapter=source.adapter,
            reducer=at_middle_block(Method(arguments.reducer or "none", arguments.reducer_arguments or {}), depth),
            labels=_labels(arguments, source.classes),
            preprocessing=preprocessing,
            head=source.head,
            provenance={"converted": {"from": path.name, "sha256": hashlib.sha256(data).hexdigest()}},
        )
    except ValueError as error:
        raise TaskError(f"{path}: {error}") from error
    if any(name.startswith("reducer.") for name, _ in blueprint(header, backbone.geometry).named_parameters()):
        raise UnsupportedError(
            f"--reducer {header.reducer.kind}: it has weights of its own, which {path} does not hold"
        )
    return header


def _labels(arguments: argparse.Namespace, classes: int | None) -> tuple[str, ...]:
    if arguments.labels is None:
        if classes is None:
            raise UnsupportedError(
                f"{arguments.input}: a published file does not say its classes; give --labels or --classes"
            )
        return tuple(str(number) for number in range(classes))
    path: Path = arguments.labels
    labels = tuple(line for _, line in read_lines(path, TaskError))
    if classes not in (None, len(labels)):
        raise TaskError(f"{path}: {len(labels)} labels for {classes} classes")
    return labels


def _summary(header: TaskHeader) -> str:
    backbone = f"{header.backbone.architecture} {header.backbone.fingerprint[:12]}"
    return f"{header.adapter.kind} with {header.adapter.arguments}, {len(header.labels)} classes, on {backbone}"
