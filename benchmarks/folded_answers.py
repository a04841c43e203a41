"""How much folding changes a task's answers, beside how far either way is from the task in float32, as Markdown.

python -m benchmarks.folded_answers --precision bfloat16

Probabilities of the labels for all sample images, those of other tasks among them, with token reduction.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import torch
from PIL import Image
from torch import Tensor

from benchmarks.markdown import table
from fpet.adapters import ADAPTERS
from fpet.backbone import Backbone, load_backbone
from fpet.embedded import default_backbone, embedded, task_path, tasks_folder
from fpet.hardware.precision import DTYPES
from fpet.images import to_rgb
from fpet.task import Task
from service.model.folded import make_instance

_HEAD = ("task", "folded to unfolded", "unfolded to float32", "folded to float32")


def probabilities(task: Task, backbone: Backbone, exact: Backbone, images: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Of the labels, float32 [N, K] each: of the task unfolded, and folded.

    exact: the backbone in float32, in which it is folded; images: uint8 [3, height, width].
    """
    model, preprocessing = task.build(backbone), task.header.preprocessing
    pixels = torch.stack([preprocessing.resize(image) for image in images])
    normalised = preprocessing.normalize(pixels, backbone.dtype)
    with torch.inference_mode():
        unfolded = model(normalised).float().softmax(dim=1)
        instance = make_instance(task.build(exact), backbone.vit)
        features = instance.features(normalised, reduced=True)
        return unfolded, model.head(features).float().softmax(dim=1)


def difference(one: Tensor, other: Tensor) -> str:
    """Of an image's probabilities [N, K] the largest change: its mean and its maximum over images, and the number of
    images with another label."""
    change = (one - other).abs().amax(dim=1)
    labels = int((one.argmax(dim=1) != other.argmax(dim=1)).sum())
    return f"{change.mean():.5f}, at most {change.max():.5f}; {labels} labels"


def main(arguments: argparse.Namespace) -> None:
    """Measures and prints."""
    exact, rounded = (load_backbone(default_backbone()) for _ in range(2))
    rounded.move("cpu", DTYPES[arguments.precision])
    files = sorted(embedded().glob("samples/*/*.png"))[: arguments.images]
    images = [to_rgb(Image.open(file)) for file in files]
    rows: list[Sequence[str]] = []
    for name in arguments.tasks:
        task = Task.load(task_path(name))
        if not ADAPTERS[task.header.adapter.kind].foldable:
            continue
        unfolded, folded = probabilities(task, rounded, exact, images)
        right, _ = probabilities(task, exact, exact, images)
        pairs = (folded, unfolded), (unfolded, right), (folded, right)
        rows.append((name, *(difference(*pair) for pair in pairs)))
    print(f"{len(images)} images, {arguments.precision}, torch {torch.__version__}\n")
    print(table(_HEAD, rows), end="")


def parser() -> argparse.ArgumentParser:
    """Of the command's options."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--precision", choices=tuple(DTYPES), default="bfloat16")
    made.add_argument("--images", type=int, metavar="N", help="how many, from the first (default: all)")
    made.add_argument("--tasks", nargs="+", default=sorted(path.stem for path in tasks_folder().glob("*.safetensors")))
    return made


if __name__ == "__main__":
    main(parser().parse_args())
