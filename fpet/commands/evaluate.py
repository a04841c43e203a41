"""`fpet evaluate`: accuracy of a task on test images."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from fpet.baseline import Baseline, check_baseline, raw_pixel_baseline
from fpet.calibration_error import BINS
from fpet.classes import check_classes
from fpet.commands import options
from fpet.commands.table import table
from fpet.commands.task_data import add_task_and_data, check_split, data_of
from fpet.commands.task_option import named_task
from fpet.data import Dataset
from fpet.data.pictures import ImageFiles
from fpet.errors import TaskError
from fpet.evaluation import Answers, Evaluation, answers, summary
from fpet.files import write_csv
from fpet.task import Task
from fpet.words import count

_DESCRIPTION = """Classifies the full test set with the task's token reduction and without, and prints the share of
right answers (accuracy) and the mean of the classes' own shares (balanced). Of a folder with one folder per class
it tests 20 % of each class; to test all, put the class folders into a folder test/, and give the folder that contains
test/."""
_CLASS_COLUMNS = ("label", "images", "accuracy", "accuracy_unreduced", "mostly_taken_for", "times")


def add_command(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `evaluate`."""
    parser = subparsers.add_parser("evaluate", description=_DESCRIPTION)
    parser.set_defaults(run=run)
    add_task_and_data(parser)
    options.add_precision(parser)
    parser.add_argument(
        "--baseline", action="store_true", help="also fit a linear classifier on the raw pixels of the training images"
    )
    parser.add_argument(
        "--per-class",
        action="store_true",
        help="also print both for each class, and what it is most often mistaken for with token reduction",
    )
    parser.add_argument(
        "--predictions",
        type=Path,
        metavar="FILE",
        help="also write a CSV file with the answer to each test image and its probability",
    )
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object, with the confusion matrix (a row per true class)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Evaluates and prints."""
    if arguments.predictions is not None:
        options.refuse_existing(arguments.predictions, option="--predictions")
    task = named_task(arguments.task)
    backbone = options.backbone(arguments)
    dtype = options.precision(arguments)
    backbone.move(arguments.device, dtype)
    model = task.build(backbone)
    # What is wrong with the model should show before all pictures are decoded.
    dataset = data_of(task, arguments, test_alone=True)
    _check_fits(task, dataset)
    if arguments.baseline:
        check_baseline(dataset)
    found = answers(model, dataset.test, task.header.preprocessing, arguments.batch_size)
    evaluation = summary(model, found)
    classes = list(_classes(dataset.labels, found)) if arguments.per_class else []
    baseline = raw_pixel_baseline(dataset) if arguments.baseline else None
    if arguments.json:
        report = {
            "task": task.header.name,
            "digest": task.digest,
            "data": dataset.name,
            "precision": arguments.precision,
        }
        extra: dict[str, Any] = {} if baseline is None else {"baseline": dataclasses.asdict(baseline)}
        extra |= {"classes": classes} if classes else {}
        print(json.dumps({**report, **dataclasses.asdict(evaluation), **_counts(dataset.labels, found), **extra}))
    else:
        print("\n".join(_lines(task, dataset, evaluation, found, baseline)))
        if classes:
            print(f"\n{table(classes, _CLASS_COLUMNS)}")
    if arguments.predictions is not None:  # last: what was found is told, though this may fail
        _write_predictions(arguments.predictions, dataset, found)
    return 0


def _counts(labels: Sequence[str], found: Answers) -> dict[str, Any]:
    """What the counts say beside the evaluation; rows of a confusion are classes, columns answers, both as labels."""
    return {
        "balanced_accuracy": found.reduced.balanced_accuracy,
        "balanced_accuracy_unreduced": found.unreduced.balanced_accuracy,
        "calibration_error": found.calibration_error,
        "labels": list(labels),
        "confusion": found.reduced.matrix().tolist(),
        "confusion_unreduced": found.unreduced.matrix().tolist(),
    }


def _write_predictions(path: Path, dataset: Dataset, found: Answers) -> None:
    """A row a test image, in order; file: its path, or of data that are no files its index in the test set.

    Raises:
        TaskError: if it cannot be written.
    """
    images = dataset.test.images
    files = images.paths if isinstance(images, ImageFiles) else range(len(images))
    columns: dict[str, Sequence[object]] = {
        "file": files,
        "label": [dataset.labels[i] for i in dataset.test.targets.tolist()],
        "answer": [dataset.labels[i] for i in found.reduced.answers.tolist()],
        "probability": [f"{value:.6f}" for value in found.probabilities.tolist()],
    }
    if found.reduces:
        columns["answer_unreduced"] = [dataset.labels[i] for i in found.unreduced.answers.tolist()]
    write_csv(path, columns, zip(*columns.values(), strict=True), TaskError)


def _classes(labels: Sequence[str], found: Answers) -> Iterator[dict[str, Any]]:
    """A row a class; of one without test images nothing is known."""
    counts = zip(found.reduced.images, found.reduced.right, found.unreduced.right, strict=True)
    for i, (label, (images, right, right_unreduced)) in enumerate(zip(labels, counts, strict=True)):
        times, other = (int(one) for one in found.reduced.mistakes(i).max(dim=0))
        yield {
            "label": label,
            "images": int(images),
            "accuracy": int(right) / int(images) if images else None,
            "accuracy_unreduced": int(right_unreduced) / int(images) if images else None,
            "mostly_taken_for": labels[other] if times else None,
            "times": times,
        }


def _lines(
    task: Task, dataset: Dataset, evaluation: Evaluation, found: Answers, baseline: Baseline | None
) -> list[str]:
    balanced, balanced_unreduced = found.reduced.balanced_accuracy, found.unreduced.balanced_accuracy
    told = "with its token reduction" if found.reduces else "without token reduction"
    lines = [
        f"{task.header.name} on {count(evaluation.images, 'test image')} of {dataset.name}",
        f"accuracy {evaluation.accuracy:.4f}  {told} ({evaluation.tokens_in_words})",
        f"balanced {balanced:.4f}  {told}: the mean of the classes' accuracies",
    ]
    if found.reduces:
        lines += [
            f"accuracy {evaluation.accuracy_unreduced:.4f}  without token reduction",
            f"balanced {balanced_unreduced:.4f}  without token reduction",
            f"         {evaluation.agreement:.4f}  of the images are answered alike",
        ]
    lines.append(f"error    {found.calibration_error:.4f}  expected calibration error {told} ({BINS} bins)")
    if baseline is not None:
        lines.append(f"accuracy {baseline.accuracy:.4f}  linear classifier on raw pixels (C = {baseline.strength:g})")
    return lines


def _check_fits(task: Task, dataset: Dataset) -> None:
    """Raises DataError if the classes are others or the split is; notes a random split of other files."""
    check_classes(task.header, dataset)
    if not dataset.fixed_test:  # else an option chose what trains or validates, and no image of the test
        check_split(task.header, dataset)
