"""What it saves that float32 products are oneDNN's on an AMD processor (`fpet.hardware.cpu`): time, to that with MKL's.

python -m benchmarks.products
python -m benchmarks.products --architecture vit_base_patch16_224 --architecture-arguments "" --batch-size 16 --rounds 5

Forwards and training steps, on random images and random weights, with the two libraries in turn. The default is the
embedded backbone's architecture. Nothing else should run beside it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from statistics import median
from typing import Any

import torch

from benchmarks.markdown import table
from benchmarks.rounds import in_turn, ratios, spread
from benchmarks.training_cost import new_run
from fpet.backbone import Backbone, create_backbone
from fpet.commands import method_options, options
from fpet.hardware.allocator import keep_freed_memory
from fpet.header import Method

_MKL, _ONEDNN = "highest", "medium"  # precisions with which torch asks the one and the other
_IMAGES = 1, 16  # of a forward
_WARM_UP = 2  # rounds that do not count
_HEAD = ("token reduction", "what", "time ratio", "spread")


def works(
    backbone: Backbone, methods: tuple[Method, Method], batch_size: int
) -> Iterator[tuple[str, Callable[[], Any]]]:
    """What is timed, by its name."""
    vit: Any = backbone.vit
    run = new_run(backbone, methods, batch_size, "float32")
    forward = torch.inference_mode()(run.model.in_evaluation())
    for count in _IMAGES:
        yield f"forward of {count}", partial(forward, torch.randn(count, 3, *vit.patch_embed.img_size))
    yield f"training step of {batch_size}", partial(run.advance, lambda: None)


def seconds(work: Callable[[], Any], precision: str) -> float:
    """Of doing it once."""
    torch.set_float32_matmul_precision(precision)
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main(arguments: argparse.Namespace) -> None:
    """Measures and prints."""
    keep_freed_memory()  # as `fpet train` does
    backbone = create_backbone(arguments.architecture, arguments.architecture_arguments)
    backbone.move("cpu")
    if torch.get_float32_matmul_precision() != _ONEDNN:
        print("nothing to compare: on this machine float32 products are computed as torch has it")
        return
    adapter, reducer = method_options.methods(arguments, backbone.geometry.depth)
    rows: list[Sequence[str]] = []
    for method in (Method("none"), reducer):
        for name, work in works(backbone, (adapter, method), arguments.batch_size):
            times = in_turn({one: partial(seconds, work, one) for one in (_MKL, _ONEDNN)}, _WARM_UP + arguments.rounds)
            each = ratios(times[_ONEDNN], times[_MKL])[_WARM_UP:]
            rows.append((method.kind, name, f"{median(each):.3f}", spread(each)))
    print(table(_HEAD, rows))
    print(
        f"{arguments.architecture} with {adapter.kind}, float32, {torch.get_num_threads()} threads, torch "
        f"{torch.__version__}; medians of {arguments.rounds} rounds"
    )


def parser() -> argparse.ArgumentParser:
    """The options."""
    root = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    root.add_argument("--batch-size", type=options.positive, default=64, help="images a step (default: %(default)s)")
    root.add_argument("--rounds", type=options.positive, default=15, help="timed of each (default: %(default)s)")
    options.add_architecture(root)
    root.set_defaults(architecture="vit_tiny_patch16_224", architecture_arguments={"img_size": 112, "patch_size": 8})
    method_options.add_methods(root)
    return root


if __name__ == "__main__":
    main(parser().parse_args())
