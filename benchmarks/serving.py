"""Throughput of the service, timed in turn with the bare loop of decoding and forward, and of 16 tasks with one.

python -m benchmarks.serving
python -m benchmarks.serving --model vit-small
python -m benchmarks.serving --model vit-least --images 16  # for what is done beside the model
"""

from __future__ import annotations

import argparse
import asyncio
import io
import random
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median

import torch
from PIL import Image

from benchmarks.formats import cpu_dtype, cpu_format, in_it
from benchmarks.load import Load, form, load, post
from benchmarks.markdown import table
from benchmarks.pictures import pictures
from benchmarks.rounds import in_turn, ratio
from benchmarks.servers import fpet_serve
from benchmarks.tasks import EMBEDDED, MODELS, Tasks, write_tasks
from fpet.backbone import load_backbone
from fpet.hardware.allocator import keep_freed_memory
from fpet.hardware.cores import cores
from fpet.images import to_rgb
from fpet.task import Task

_TASKS = 16
_BATCH = 16
_ZIPF = 1.1
_SHARES = (0.5, 0.99)

Timed = tuple[float, Load | None]  # images a second, and what the client saw if it was HTTP


def main() -> None:
    """Measures and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=MODELS, default=EMBEDDED, help="others have random weights")
    parser.add_argument("--task", default="fashion-mnist", help="embedded task that those of that model are like")
    parser.add_argument("--rounds", type=int, default=5, help="how often each is timed, in turn (default: 5)")
    parser.add_argument("--seconds", type=float, default=10, help="of each timing (default: 10)")
    parser.add_argument("--concurrency", type=int, default=32, help="images in flight (default: 32)")
    parser.add_argument("--images", type=int, default=1, help="in a request (default: 1)")
    parser.add_argument("--processes", type=int, default=1, help="of the service (default: 1)")
    arguments = parser.parse_args()
    keep_freed_memory()  # as the service does
    images = pictures()
    with tempfile.TemporaryDirectory() as folder:
        tasks = write_tasks(Path(folder), arguments.model, arguments.task, _TASKS)
        names = tasks.names
        # The loop does not fold, and what is timed in turn with it should not either.
        options = ["--backbone", str(tasks.backbone), "--folded-bytes", "0", "--processes", str(arguments.processes)]
        with fpet_serve(tasks.folder, *in_it(), *options) as server:
            weights = [1 / (rank + 1) ** _ZIPF for rank in range(len(names))]
            loads: dict[str, Callable[[], str]] = {
                "service, one task": lambda: names[0],
                f"service, {_TASKS} tasks, uniform": lambda: random.choice(names),
                f"service, {_TASKS} tasks, zipf {_ZIPF}": lambda: random.choices(names, weights)[0],
            }
            ways: dict[str, Callable[[], Timed]] = {
                "decoding and forward alone": lambda: _bare(tasks, images, arguments.seconds)
            }
            for name, choose in loads.items():
                ways[name] = lambda choose=choose: _served(server.port, arguments, images, choose)  # type: ignore[misc]
            results = in_turn(ways, arguments.rounds)
    print(
        f"{arguments.model}, images/s, {arguments.rounds} rounds of {arguments.seconds:g} s, "
        f"{arguments.concurrency} images in flight, {arguments.images} a request, "
        f"{arguments.processes} processes, {cores()} cores, {cpu_format()}, {torch.__version__}\n"
    )
    print(table(("", "images/s", "spread", "to the first", "to one task", "p50 ms", "p99 ms"), _rows(results)))


def _rows(results: Mapping[str, Sequence[Timed]]) -> Iterator[Sequence[str]]:
    rates = {name: [rate for rate, _ in timed] for name, timed in results.items()}
    first, one = list(rates)[:2]
    for name, values in rates.items():
        loads = [served for _, served in results[name] if served is not None]
        times = [f"{1000 * median(load.percentile(share) for load in loads):.0f}" if loads else "" for share in _SHARES]
        ratios = [f"{ratio(values, rates[other]):.3f}" for other in (first, one)]
        yield (name, f"{median(values):.1f}", f"{min(values):.1f} - {max(values):.1f}", *ratios, *times)


def _served(port: int, arguments: argparse.Namespace, images: Sequence[bytes], choose: Callable[[], str]) -> Timed:
    count = arguments.images

    def request() -> bytes:
        body = (random.choice(images),) if count == 1 else form(random.choices(images, k=count))
        return post(port, f"/v1/tasks/{choose()}/classify?top_k=1", *body)

    at_once = max(1, arguments.concurrency // count)
    done = asyncio.run(load(port, at_once, arguments.seconds, request)).require_success()
    return count * done.rate, done


def _bare(tasks: Tasks, images: Sequence[bytes], seconds: float) -> Timed:
    """The same work without HTTP, queue and batching: a thread a core, each with batches of its own."""
    torch.set_num_threads(1)
    dtype = cpu_dtype()
    backbone = load_backbone(tasks.backbone)
    backbone.move("cpu", dtype)
    task = Task.load(tasks.folder / f"{tasks.names[0]}.safetensors")
    model, preprocessing = task.build(backbone), task.header.preprocessing
    counts = [0] * cores()
    stop = time.perf_counter() + seconds

    def work(thread: int) -> None:
        torch.set_num_threads(1)
        while time.perf_counter() < stop:
            decoded = [to_rgb(Image.open(io.BytesIO(random.choice(images)))) for _ in range(_BATCH)]
            pixels = torch.stack([preprocessing.resize(image) for image in decoded])
            with torch.inference_mode():
                model(preprocessing.normalize(pixels, dtype)).softmax(dim=1).topk(1)
            counts[thread] += _BATCH

    threads = [threading.Thread(target=work, args=(i,)) for i in range(cores())]
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / (time.perf_counter() - started), None


if __name__ == "__main__":
    main()
