"""What the service says that token reduction saves, beside the two forwards timed directly.

python -m benchmarks.savings

So many requests are in flight that every batch is full, and all numbers are of the same batch size.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import time
import urllib.request
from collections.abc import Sequence
from statistics import median, quantiles

import torch
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.formats import cpu_dtype, cpu_format, in_it
from benchmarks.load import load, post
from benchmarks.markdown import table
from benchmarks.pictures import pictures
from benchmarks.servers import fpet_serve
from fpet.backbone import load_backbone
from fpet.embedded import default_backbone, task_path, tasks_folder
from fpet.hardware.allocator import keep_freed_memory
from fpet.hardware.cores import cores
from fpet.hardware.paired_timing import alternate
from fpet.task import Task

_IN_FLIGHT = 3  # full batches for each forward that runs at once
_SHADOW_SHARE = 0.2
_HEAD = ("images a batch", "mean batch", "calibrated", "shadow", "timed directly", "middle half of the timings")


def main(arguments: argparse.Namespace) -> None:
    """Measures and prints a table."""
    keep_freed_memory()  # as the service does
    print(
        f"{arguments.task}, time of a forward without token reduction over that with it; {arguments.seconds:g} s of "
        f"requests, {arguments.repeats} direct timings, {cores()} cores, {cpu_format()}, "
        f"torch {torch.__version__}\n"
    )
    print(table(_HEAD, [_row(arguments, size) for size in arguments.batch_sizes]))


def _row(arguments: argparse.Namespace, size: int) -> Sequence[str]:
    mean_batch, calibrated, shadow = _served(arguments, size)
    ratios = _direct(arguments, size)
    low, _, high = quantiles(ratios, n=4)
    said = f"{mean_batch:.2f}", f"{calibrated:.3f}", f"{shadow:.3f}"
    return str(size), *said, f"{median(ratios):.3f}", f"{low:.3f} to {high:.3f}"


def _served(arguments: argparse.Namespace, size: int) -> tuple[float, float, float]:
    """Images a batch, and the speed-ups that /v1/savings reports by its calibration and by its shadows."""
    # A task that is folded while this runs would be timed in two ways.
    options = {"max-batch": size, "shadow-share": _SHADOW_SHARE, "folded-bytes": 0}
    flags = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    images = itertools.cycle(pictures())
    path = f"/v1/tasks/{arguments.task}/classify?top_k=1"
    with fpet_serve(tasks_folder(), *in_it(), *flags) as server:
        asyncio.run(
            load(
                server.port,
                _IN_FLIGHT * cores() * size,
                arguments.seconds,
                lambda: post(server.port, path, next(images)),
            )
        ).require_success()
        said = json.loads(_get(server.port, "/v1/savings"))
        families = {family.name: family for family in text_string_to_metric_families(_get(server.port, "/metrics"))}
    (saving,) = [each for each in said["tasks"] if each["task"] == arguments.task]
    if saving["shadow"] is None:
        raise RuntimeError("no shadow ran in that time; give more --seconds")
    batches = {sample.name.rpartition("_")[2]: sample.value for sample in families["fpet_batch_size"].samples}
    return batches["sum"] / batches["count"], saving["speedup"], saving["shadow"]["speedup"]


def _direct(arguments: argparse.Namespace, size: int) -> list[float]:
    """Time without reduction over that with it, of forwards side by side in one thread."""
    torch.set_num_threads(1)
    dtype = cpu_dtype()
    backbone = load_backbone(default_backbone())
    backbone.move("cpu", dtype)
    task = Task.load(task_path(arguments.task))
    reduced = task.build(backbone)
    full = reduced.unreduced()
    images = torch.randn(size, 3, *task.header.preprocessing.size).to(dtype)

    def seconds(which: bool) -> float:
        started = time.perf_counter()
        with torch.inference_mode():
            (reduced if which else full)(images)
        return time.perf_counter() - started

    seconds(True), seconds(False)
    with_reduction, without = alternate(arguments.repeats, seconds)
    return [slow / fast for slow, fast in zip(without, with_reduction, strict=True)]


def _get(port: int, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}") as answer:
        return str(answer.read().decode())


def parser() -> argparse.ArgumentParser:
    """The options."""
    root = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    root.add_argument("--task", default="fashion-mnist", help="embedded task to ask (default: %(default)s)")
    root.add_argument("--seconds", type=float, default=20, help="of requests, a batch size (default: %(default)s)")
    root.add_argument("--repeats", type=int, default=51, help="direct timings, a batch size (default: %(default)s)")
    root.add_argument("--batch-sizes", type=int, nargs="+", default=[1, 4, 16], help="(default: 1 4 16)")
    return root


if __name__ == "__main__":
    main(parser().parse_args())
