"""Time and memory of a training step with token reduction and without (the paper's tables 1 and 4), as Markdown.

python -m benchmarks.training_cost --architecture vit_base_patch16_224 --batch-size 64

Real training epochs of a step each, or of several, on random images and random weights, with the two alternating so
that both meet the same machine. Nothing else should run beside it.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from benchmarks import cost
from benchmarks.markdown import table
from benchmarks.rounds import ratios, spread
from fpet.backbone import Backbone
from fpet.commands import options
from fpet.data import Dataset, Split
from fpet.data.split import ImageTensor
from fpet.hardware.allocator import keep_freed_memory
from fpet.training.recipe import Recipe
from fpet.training.run import Run
from fpet.untrained import new_header
from fpet.words import count

_CLASSES = 100
_WARM_UP = 2  # steps that are not timed
_MIB = 2**20
_HEAD = ("token reduction", "tokens", "seconds a step", "time ratio", "spread", "memory (MiB)", "memory ratio")


def random_data(classes: int, images: int, side: int) -> Dataset:
    """As many random grey images for each split."""
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(256, (images, side, side), generator=generator, dtype=torch.uint8)
    split = Split(ImageTensor(pixels), torch.randint(classes, (images,), generator=generator))
    return Dataset("random", tuple(map(str, range(classes))), "", split, split, split)


def new_run(backbone: Backbone, methods: cost.Methods, batch_size: int, precision: str, steps: int = 1) -> Run:
    """A training run whose epochs have so many steps and no validation."""
    vit: Any = backbone.vit
    data = random_data(_CLASSES, batch_size * steps, vit.patch_embed.img_size[0])
    endless = Recipe(epochs=10**9, validate_every=10**9, batch_size=batch_size, precision=precision)
    adapter, reducer = methods
    return Run(new_header("cost", data.labels, backbone, adapter=adapter, reducer=reducer), backbone, data, endless)


def memory(backbone: Backbone, methods: cost.Methods, batch_size: int, precision: str) -> int:
    """Bytes that a step takes, of a run that is alone: see `Trained`."""
    run = new_run(backbone, methods, batch_size, precision)
    run.advance(lambda: None)
    return run.step_memory()


def main(arguments: argparse.Namespace) -> None:
    """Measures and prints."""
    keep_freed_memory()  # as `fpet train` does
    backbone = cost.backbone(arguments)
    both = cost.without_and_with(arguments, backbone.geometry.depth)
    size, precision, steps = arguments.batch_size, arguments.precision, arguments.steps
    kept = [memory(backbone, methods, size, precision) for methods in both]
    runs = [new_run(backbone, methods, size, precision, steps) for methods in both]
    # A step's end is awaited on a GPU too, since the epoch's loss is read.
    ways = {str(index): partial(run.advance, lambda: None) for index, run in enumerate(runs)}
    times = list(cost.times(ways, arguments.repeats, _WARM_UP).values())
    rows: list[Sequence[str]] = []
    for (_, method), run, timed, held in zip(both, runs, times, kept, strict=True):
        each = ratios(timed, times[0])
        row = (f"{statistics.median(timed) / steps:.4f}", f"{statistics.median(each):.3f}", spread(each))
        rows.append((method.kind, str(run.model.tokens_out), *row, f"{held / _MIB:.1f}", f"{held / kept[0]:.3f}"))
    print(table(_HEAD, rows))
    print(
        f"{cost.conditions(arguments, both[0][0])}; batches of {size}, medians of {arguments.repeats} epochs of "
        f"{count(steps, 'step')}, timed in turn"
    )


def parser() -> argparse.ArgumentParser:
    """The options."""
    root = cost.parser(__doc__, repeats=15)
    root.add_argument("--batch-size", type=options.positive, default=64, help="images a step (default: %(default)s)")
    root.add_argument(
        "--steps", type=options.positive, default=1, help="steps an epoch, which takes time of its own (default: 1)"
    )
    return root


if __name__ == "__main__":
    main(parser().parse_args())
