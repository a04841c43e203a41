"""Time and memory of a training step with token reduction and without (the paper's tables 1 and 4), as Markdown.

python -m benchmarks.training_cost --architecture vit_base_patch16_224 --batch-size 64

Real training epochs of one step each, on random images and random weights, with the two alternating so that both meet
the same machine. Nothing else should run beside it.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from benchmarks.markdown import table
from benchmarks.rounds import in_turn, spread
from fpet.allocator import keep_freed_memory
from fpet.backbone import Backbone, create_backbone
from fpet.commands import method_options, options
from fpet.data import Dataset, Split
from fpet.data.split import ImageTensor
from fpet.header import Method
from fpet.recipe import PRECISIONS, Recipe
from fpet.run import Run
from fpet.untrained import new_header

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


def new_run(backbone: Backbone, methods: tuple[Method, Method], batch_size: int, precision: str) -> Run:
    """A training run whose epochs have one step and no validation."""
    vit: Any = backbone.vit
    data = random_data(_CLASSES, batch_size, vit.patch_embed.img_size[0])
    endless = Recipe(epochs=10**9, validate_every=10**9, batch_size=batch_size, precision=precision)
    return Run(new_header("cost", data.labels, backbone, methods, 32), backbone, data, endless)


def seconds(run: Run) -> float:
    """Of one step; its end is awaited on a GPU too, since the epoch's loss is read."""
    start = time.perf_counter()
    run.advance(lambda: None)
    return time.perf_counter() - start


def memory(backbone: Backbone, methods: tuple[Method, Method], batch_size: int, precision: str) -> int:
    """Bytes that a step takes, of a run that is alone: see `Trained`."""
    run = new_run(backbone, methods, batch_size, precision)
    run.advance(lambda: None)
    return run.step_memory()


def main(arguments: argparse.Namespace) -> None:
    """Measures and prints."""
    keep_freed_memory()  # as `fpet train` does
    backbone = create_backbone(arguments.architecture, arguments.architecture_arguments)
    backbone.move(arguments.device)
    adapter, reducer = method_options.methods(arguments, backbone.geometry.depth)
    both = [(adapter, Method("none")), (adapter, reducer)]
    size, precision = arguments.batch_size, arguments.precision
    kept = [memory(backbone, methods, size, precision) for methods in both]
    runs = [new_run(backbone, methods, size, precision) for methods in both]
    ways = {str(index): partial(seconds, run) for index, run in enumerate(runs)}
    times = [timed[_WARM_UP:] for timed in in_turn(ways, _WARM_UP + arguments.repeats).values()]
    rows: list[Sequence[str]] = []
    for (_, method), run, timed, held in zip(both, runs, times, kept, strict=True):
        ratios = [spent / full for spent, full in zip(timed, times[0], strict=True)]
        row = (f"{statistics.median(timed):.4f}", f"{statistics.median(ratios):.3f}", spread(ratios))
        rows.append((method.kind, str(run.model.tokens_out), *row, f"{held / _MIB:.1f}", f"{held / kept[0]:.3f}"))
    print(table(_HEAD, rows))
    print(_conditions(arguments, adapter))


def _conditions(arguments: argparse.Namespace, adapter: Method) -> str:
    device = torch.device(arguments.device)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    return (
        f"{arguments.architecture} with {adapter.kind}, batches of {arguments.batch_size}, {arguments.precision}, "
        f"{name}, torch {torch.__version__}; medians of {arguments.repeats} steps, timed in turn"
    )


def parser() -> argparse.ArgumentParser:
    """The options."""
    root = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    root.add_argument("--batch-size", type=options.positive, default=64, help="images a step (default: %(default)s)")
    root.add_argument("--repeats", type=options.positive, default=15, help="timed steps of each (default: %(default)s)")
    root.add_argument("--precision", choices=PRECISIONS, default="float32", help="(default: %(default)s)")
    root.add_argument("--device", default="cpu", help="torch device, cpu or cuda[:N] (default: %(default)s)")
    options.add_architecture(root)
    root.set_defaults(architecture="vit_base_patch16_224")
    method_options.add_methods(root)
    return root


if __name__ == "__main__":
    main(parser().parse_args())
