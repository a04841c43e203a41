"""`fpet classify`: labels of images, by a running service or in this process."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fpet.classifier import Classifier
from fpet.commands import options
from fpet.commands.task_option import add_task, named_task
from fpet.commands.tell import tell
from fpet.data.listing import visible
from fpet.errors import DataError, ImageError, UnsupportedError
from fpet.files import read_lines
from fpet.image_files import is_special
from fpet.predictions import Classification
from fpet.words import printable, shown

if TYPE_CHECKING:
    from fpet.client import Classification as ServedClassification

_DESCRIPTION = """Prints a line for each image: the file, and the most probable labels with their probabilities. Of a
folder it takes every file directly in it, except hidden files and system files such as Thumbs.db. Without --url the
task runs in this process. The exit code is 1 if an image could not be classified."""
_BATCH = 16
_IN_PROCESS = ("backbone", "architecture", "architecture_arguments", "device", "precision")
_SOME_FAILED = 1

# `predictions`, `task`, `digest` and `tokens` as in the service's answer; or `error`.
Row = dict[str, Any]


def add_command(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `classify`."""
    parser = subparsers.add_parser("classify", description=_DESCRIPTION)
    parser.add_argument(
        "images", type=Path, nargs="+", metavar="IMAGE", help="any still picture that Pillow reads, or a folder of them"
    )
    add_task(parser)
    parser.add_argument("--url", metavar="URL", help="service to ask, such as http://127.0.0.1:8000, for its task T")
    parser.add_argument("--key-file", type=Path, metavar="FILE", help="file with the key of the service at --url")
    parser.add_argument(
        "--top-k", type=options.positive, default=1, metavar="N", help="labels per image (default: %(default)s)"
    )
    parser.add_argument(
        "--tokens",
        choices=["reduced", "full"],
        default="reduced",
        help="with the task's token reduction or without (default: %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    options.add_backbone(parser)
    options.add_precision(parser)
    parser.set_defaults(run=run, in_process={name: parser.get_default(name) for name in _IN_PROCESS})


def run(arguments: argparse.Namespace) -> int:
    """Classifies and prints."""
    images = [path for given in arguments.images for path in (_files(given) if _is_folder(given) else [given])]
    failed = False
    for path, row in zip(images, _rows(arguments, images), strict=True):
        if "error" in row:
            failed = True
        if arguments.json:
            print(json.dumps({"file": str(path), **row}), flush=True)
        elif "error" in row:
            tell(row["error"])
        else:
            best = (f"{shown(one['label'])}\t{one['probability']:.4f}" for one in row["predictions"])
            print("\t".join([printable(str(path)), *best]), flush=True)
    return _SOME_FAILED if failed else 0


def _files(folder: Path) -> list[Path]:
    """The files directly in a folder that training would take for pictures, sorted.

    Raises:
        DataError: if there are none, or the folder cannot be read.
    """
    files = [path for path in visible(folder) if not _is_folder(path)]
    if not files:
        raise DataError(f"{folder}: there is no image directly in this folder; name one that has some")
    return files


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # as of a name that is too long: it is told as of an image
        return False


def _rows(arguments: argparse.Namespace, images: Sequence[Path]) -> Iterator[Row]:
    """One an image."""
    if arguments.url is None:
        if arguments.key_file is not None:
            raise UnsupportedError("--key-file: only a service asks for a key; name its --url")
        return _compute(arguments, images)
    for name, default in arguments.in_process.items():
        if getattr(arguments, name) != default:
            raise UnsupportedError(f"--{name.replace('_', '-')}: with --url the service chooses it")
    if Path(arguments.task).suffix == ".safetensors":
        raise UnsupportedError(f"--task {arguments.task}: a service knows its tasks by name; with --url give the name")
    return _ask(arguments, images)


def _ask(arguments: argparse.Namespace, images: Sequence[Path]) -> Iterator[Row]:
    """Asks for as many at once as the client sends at once, so that what is answered is told while it goes on."""
    try:
        from fpet.client import Client  # noqa: PLC0415  # optional
    except ImportError as error:
        raise UnsupportedError(str(error)) from error
    with Client(arguments.url, key=_key(arguments.key_file)) as client:
        at_once = client.batch * client.concurrency
        for start in range(0, len(images), at_once):
            some = images[start : start + at_once]
            files = [path for path in some if not is_special(path)]
            answers = client.classify_each(files, arguments.task, top_k=arguments.top_k, tokens=arguments.tokens)
            found = dict(zip(files, answers, strict=True))
            yield from (_answered(path, found.get(path)) for path in some)


def _answered(path: Path, answer: ServedClassification | ImageError | None) -> Row:
    """answer: None if the service was not asked."""
    if answer is None:
        return {"error": f"{path}: this is no file"}
    if isinstance(answer, ImageError):
        return {"error": str(answer)}
    return _row(answer.task, answer.digest, answer)


def _row(task: str, digest: str, answer: Classification) -> Row:
    return {
        "task": task,
        "digest": digest,
        "predictions": [dataclasses.asdict(one) for one in answer.predictions],
        "tokens": {"in": answer.tokens.into, "out": answer.tokens.out},
    }


def _key(file: Path | None) -> str | None:
    if file is None:
        return None
    return "\n".join(line for _, line in read_lines(file, UnsupportedError))


def _compute(arguments: argparse.Namespace, images: Sequence[Path]) -> Iterator[Row]:
    """By batches, so that what is answered is told while it goes on."""
    task = named_task(arguments.task)
    if arguments.top_k > (labels := len(task.header.labels)):
        raise UnsupportedError(f"--top-k {arguments.top_k}: the task {task.header.name} has {labels} labels")
    backbone = options.backbone(arguments)
    backbone.move(arguments.device, options.precision(arguments))
    classifier = Classifier(task, backbone)
    for start in range(0, len(images), _BATCH):
        some = images[start : start + _BATCH]
        for answer in classifier.classify_each(some, top_k=arguments.top_k, tokens=arguments.tokens):
            if isinstance(answer, ImageError):
                yield {"error": str(answer)}
            else:
                yield _row(task.header.name, task.digest, answer)
