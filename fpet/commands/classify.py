"""`fpet classify`: labels of images, by a running service or in this process."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from fpet.commands import options
from fpet.commands.tell import tell
from fpet.data.listing import visible
from fpet.data.pictures import ImageFiles, is_special
from fpet.errors import DataError, ImageError, UnsupportedError
from fpet.evaluation import classify, not_finite
from fpet.files import read_lines
from fpet.task import Task
from fpet.vit import AdaptedViT
from fpet.words import printable, shown

if TYPE_CHECKING:
    from fpet.client import Classification

_DESCRIPTION = """Prints a line for each image: the file, and the most probable labels with their probabilities. Of a
folder every file directly in it is an image, but for hidden files and what systems leave there, such as Thumbs.db.
Without --url the task runs in this process. The exit code is 1 if an image could not be classified."""
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
    options.add_task(parser)
    parser.add_argument("--url", metavar="URL", help="service to ask, such as http://127.0.0.1:8000, for its task T")
    parser.add_argument("--key-file", type=Path, metavar="FILE", help="file with the key of the service at --url")
    parser.add_argument(
        "--top-k", type=options.positive, default=1, metavar="N", help="labels an image (default: %(default)s)"
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


def _answered(path: Path, answer: Classification | ImageError | None) -> Row:
    """answer: None if the service was not asked."""
    if answer is None:
        return {"error": f"{path}: this is no file"}
    if isinstance(answer, ImageError):
        return {"error": str(answer)}
    return {
        "task": answer.task,
        "digest": answer.digest,
        "predictions": [dataclasses.asdict(one) for one in answer.predictions],
        "tokens": {"in": answer.tokens.into, "out": answer.tokens.out},
    }


def _key(file: Path | None) -> str | None:
    if file is None:
        return None
    return "\n".join(line for _, line in read_lines(file, UnsupportedError))


def _compute(arguments: argparse.Namespace, images: Sequence[Path]) -> Iterator[Row]:
    task = options.task(arguments)
    labels = len(task.header.labels)
    if arguments.top_k > labels:
        raise UnsupportedError(f"--top-k {arguments.top_k}: the task {task.header.name} has {labels} labels")
    backbone = options.backbone(arguments)
    dtype = options.precision(arguments)
    backbone.move(arguments.device, dtype)
    reduced = task.build(backbone)
    model = reduced if arguments.tokens == "reduced" else reduced.unreduced()
    for start in range(0, len(images), _BATCH):
        yield from _answers(task, model, images[start : start + _BATCH], arguments.top_k)


def _answers(task: Task, model: AdaptedViT, paths: Sequence[Path], top_k: int) -> Iterator[Row]:
    """Runs those of a batch that can be read."""
    files = ImageFiles(tuple(paths))
    pixels = [_pixels(files, i, task) for i in range(len(files))]
    readable = [one for one in pixels if isinstance(one, Tensor)]
    found: Iterator[tuple[Tensor, int]] = iter(())
    if readable:
        with torch.inference_mode():
            logits, left = classify(model, torch.stack(readable), task.header.preprocessing)
        found = zip(logits.cpu(), left.tolist(), strict=True)
    for path, one in zip(paths, pixels, strict=True):
        if isinstance(one, DataError):
            yield {"error": str(one)}
            continue
        answer, tokens = next(found)
        if not answer.isfinite().all():
            yield {"error": f"{path}: {not_finite(model)}"}
            continue
        yield {
            "task": task.header.name,
            "digest": task.digest,
            "predictions": _best(answer.softmax(dim=0), task.header.labels, top_k),
            "tokens": {"in": model.tokens_in, "out": tokens},
        }


def _pixels(files: ImageFiles, index: int, task: Task) -> Tensor | DataError:
    """uint8 [3, H, W] as the task takes them."""
    try:
        return task.header.preprocessing.resize(files[index])
    except DataError as error:
        return error


def _best(probabilities: Tensor, labels: Sequence[str], top_k: int) -> list[Row]:
    values, indices = probabilities.topk(top_k)
    return [
        {"label": labels[index], "index": index, "probability": value}
        for value, index in zip(values.tolist(), indices.tolist(), strict=True)
    ]
