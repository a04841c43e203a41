"""Time of a forward with token reduction, to that without and to the bare backbone's, for several numbers of images, as
Markdown.

python -m benchmarks.forward_cost --device cuda --precision bfloat16

Random images and random weights, of the precision throughout as in service, with the three alternating so that all
meet the same machine. The bare backbone has a head alone; with --folded, so do the others, their adapters folded. On a
GPU they are replayed from CUDA graphs, as in service too: without them it would wait for Python. Nothing else should
run beside it.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor

from benchmarks import cost
from benchmarks.markdown import table
from benchmarks.rounds import ratios, spread
from fpet.backbone import Backbone
from fpet.commands import options
from fpet.folding import fold
from fpet.hardware.allocator import keep_freed_memory
from fpet.hardware.graphs import CudaGraphs
from fpet.hardware.precision import DTYPES
from fpet.header import Method
from fpet.task import Task, new_model, save_task
from fpet.untrained import new_header, preprocessing_of

_WARM_UP = 3  # forwards that are not timed
_HEAD = ("images", "tokens without", "tokens with", "time ratio", "spread", "to the bare backbone", "spread")
_BARE: cost.Methods = (Method("none"), Method("none"))
_LABELS = tuple(map(str, range(100)))


def forward(
    backbone: Backbone, methods: cost.Methods, images: Tensor, *, folded: bool
) -> tuple[Callable[[], object], int]:
    """What computes the logits of images [B, 3, H, W] and waits for them; how many tokens it ends with."""
    adapter, reducer = methods
    header = new_header("cost", _LABELS, backbone, adapter=adapter, reducer=reducer)
    with TemporaryDirectory() as folder:
        file = Path(folder, "cost.safetensors")
        save_task(file, header, new_model(header, backbone))
        model = Task.load(file).build(backbone)  # whose weights of few bits are rounded, and not in every forward
    model = fold(model) if folded else model

    def compute() -> Tensor:
        with torch.inference_mode():
            logits: Tensor = model(images)
            return logits

    if images.device.type != "cuda":
        return compute, model.tokens_out
    replay = CudaGraphs(images.device).capture(compute)

    def computed() -> None:
        replay()
        torch.cuda.synchronize(images.device)

    return computed, model.tokens_out


def main(arguments: argparse.Namespace) -> None:
    """Measures and prints."""
    keep_freed_memory()
    dtype = DTYPES[arguments.precision]
    backbone = cost.backbone(arguments, dtype)
    both = cost.without_and_with(arguments, backbone.geometry.depth)
    size = preprocessing_of(backbone).size
    rows: list[Sequence[str]] = []
    for count in arguments.images:
        images = torch.randn(count, 3, *size, dtype=dtype, device=arguments.device)
        (full, tokens), (reduced, fewer), (bare, _) = (
            forward(backbone, methods, images, folded=arguments.folded) for methods in (*both, _BARE)
        )
        times = cost.times({"full": full, "reduced": reduced, "bare": bare}, arguments.repeats, _WARM_UP)
        cells = [str(count), str(tokens), str(fewer)]
        for other in ("full", "bare"):
            each = ratios(times["reduced"], times[other])
            cells += [f"{statistics.median(each):.3f}", spread(each)]
        rows.append(cells)
    print(table(_HEAD, rows))
    print(f"{cost.conditions(arguments, both[0][0])}; medians of {arguments.repeats} forwards, timed in turn")


def parser() -> argparse.ArgumentParser:
    """The options."""
    root = cost.parser(__doc__, repeats=50)
    root.add_argument(
        "--images", type=options.positive, nargs="+", default=[1, 8, 32], metavar="N", help="(default: 1 8 32)"
    )
    root.add_argument("--folded", action="store_true", help="with the adapter multiplied into the backbone's weights")
    return root


if __name__ == "__main__":
    main(parser().parse_args())
