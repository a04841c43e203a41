"""Adapters that other projects saved, as task files."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from pathlib import Path

from fpet.backbone import Backbone
from fpet.convert.catalog import Published
from fpet.convert.peft import WEIGHTS, PeftTask, read_peft
from fpet.convert.published import decode
from fpet.errors import TaskError, UnsupportedError
from fpet.files import read_bytes, read_regular
from fpet.header import BackboneRef, Method, TaskHeader
from fpet.preprocess import Preprocessing
from fpet.task import save_tensors, task_on_meta
from fpet.untrained import at_middle_block, preprocessing_of


@dataclasses.dataclass(frozen=True, kw_only=True)
class Supplement:
    """What the files of other projects do not say of a task.

    name: of the task; by default that of its file. labels: of the classes in order; by default their numbers from 0.
    reducer: a token reduction without weights, at the middle block unless it names another; by default none.
    """

    name: str = ""
    labels: tuple[str, ...] | None = None
    reducer: Method = dataclasses.field(default_factory=lambda: Method("none"))


def from_published(
    source: str | os.PathLike[str],
    output: str | os.PathLike[str],
    backbone: Backbone,
    published: Published,
    supplement: Supplement | None = None,
) -> TaskHeader:
    """Converts a published Bi-LoRA or Bi-AdaptFormer file; its images have values from 0 to 1, not normalised.

    backbone: the one that the adapter was trained on, which the file does not say. Returns the header of the task file,
    which is written atomically.

    Raises:
        TaskError: if the file cannot be read or is not what `published` says, if there are not as many labels as
            classes, or neither is known, or if the output cannot be written.
        UnsupportedError: if a task file cannot hold it, or the token reduction has weights of its own.
    """
    source, output = Path(source), Path(output)
    data = read_regular(source, TaskError)
    if (published.classes or 0) > 8 * len(data):  # each would get a label before the length is compared
        raise TaskError(f"{source}: {len(data)} bytes cannot hold a head of {published.classes} classes")
    preprocessing = dataclasses.replace(preprocessing_of(backbone), mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))
    try:
        header = _header(published, backbone, preprocessing, _named(supplement, output), _origin(source, data))
        save_tensors(output, header, decode(data, header, backbone), backbone)
    except ValueError as error:
        raise TaskError(f"{source}: {error}") from error
    return header


def from_peft(
    folder: str | os.PathLike[str],
    output: str | os.PathLike[str],
    backbone: Backbone,
    supplement: Supplement | None = None,
    *,
    interpolation: str = "bicubic",
) -> TaskHeader:
    """Converts a LoRA checkpoint of Hugging Face PEFT; its images are normalised as the backbone's.

    interpolation: how images were resized. Returns as `from_published`, and raises what that and `read_peft` do.
    """
    folder, output = Path(folder), Path(output)
    found = read_peft(folder, backbone)
    preprocessing = dataclasses.replace(preprocessing_of(backbone), interpolation=interpolation)
    origin = _origin(folder, read_bytes(folder / WEIGHTS, TaskError))
    try:
        header = _header(found, backbone, preprocessing, _named(supplement, output), origin)
        save_tensors(output, header, found.tensors, backbone)
    except ValueError as error:
        raise TaskError(f"{folder}: {error}") from error
    return header


def _named(supplement: Supplement | None, output: Path) -> Supplement:
    known = supplement or Supplement()
    return known if known.name else dataclasses.replace(known, name=output.stem)


def _origin(source: Path, data: bytes) -> dict[str, str]:
    return {"from": source.name, "sha256": hashlib.sha256(data).hexdigest()}


def _header(
    found: Published | PeftTask,
    backbone: Backbone,
    preprocessing: Preprocessing,
    supplement: Supplement,
    origin: dict[str, str],
) -> TaskHeader:
    """Raises ValueError for what cannot be a task's, and UnsupportedError for a reduction with weights."""
    header = TaskHeader(
        name=supplement.name,
        backbone=BackboneRef(backbone.architecture, backbone.arguments, backbone.fingerprint),
        adapter=found.adapter,
        reducer=at_middle_block(supplement.reducer, backbone.geometry.depth),
        labels=_labels(found.classes, supplement.labels),
        preprocessing=preprocessing,
        head=found.head,
        provenance={"converted": origin},
    )
    if any(name.startswith("reducer.") for name, _ in task_on_meta(header, backbone.geometry).named_parameters()):
        kind = header.reducer.kind
        raise UnsupportedError(f"the token reduction {kind} has weights of its own, which {origin['from']} lacks")
    return header


def _labels(classes: int | None, labels: tuple[str, ...] | None) -> tuple[str, ...]:
    if labels is None:
        if classes is None:
            raise ValueError("the file does not say its classes; labels or their number are to be given")
        return tuple(str(number) for number in range(classes))
    if classes not in (None, len(labels)):
        raise ValueError(f"{len(labels)} labels for {classes} classes")
    return labels
