"""Throughput of the service, timed in turn with the bare loop of decoding and forward, and of 16 tasks with one.

python -m benchmarks.serving
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import io
import itertools
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from benchmarks.load import Load, load, post
from benchmarks.markdown import table
from fpet.backbone import load_backbone
from fpet.images import to_rgb
from fpet.task import Task, new_model, save_task
from fpet.weights import default_backbone, task_path
from service.hardware import cores, pick_dtype

_TASKS = 16
_IMAGES = 16
_SIZE = (500, 375)  # pixels, as an ordinary small photograph
_ZIPF = 1.1
_CPU = torch.device("cpu")


def main() -> None:
    """Measures and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="fashion-mnist", help="embedded task that the others are made from")
    parser.add_argument("--rounds", type=int, default=5, help="how often each is timed, in turn (default: 5)")
    parser.add_argument("--seconds", type=float, default=10, help="of each timing (default: 10)")
    parser.add_argument("--concurrency", type=int, default=32, help="requests in flight (default: 32)")
    arguments = parser.parse_args()
    pictures = _pictures()
    with tempfile.TemporaryDirectory() as folder, _service(_write_tasks(arguments.task, Path(folder))) as port:
        names = sorted(path.stem for path in Path(folder).glob("*.safetensors"))
        weights = [1 / (rank + 1) ** _ZIPF for rank in range(len(names))]
        loads = {
            "service, one task": lambda: names[0],
            f"service, {_TASKS} tasks, uniform": lambda: random.choice(names),
            f"service, {_TASKS} tasks, zipf {_ZIPF}": lambda: random.choices(names, weights)[0],
        }
        ways: dict[str, Callable[[], float]] = {
            "decoding and forward alone": lambda: _bare(arguments.task, pictures, arguments.seconds)
        }
        latencies: dict[str, list[Load]] = {name: [] for name in loads}
        for name, choose in loads.items():
            ways[name] = lambda name=name, choose=choose: _served(  # type: ignore[misc]
                port, arguments, pictures, choose, latencies[name]
            )
        rates = _in_turn(ways, arguments.rounds)
    print(
        f"images/s, {arguments.rounds} rounds of {arguments.seconds:g} s, concurrency {arguments.concurrency}, "
        f"{cores()} cores, {pick_dtype('auto', _CPU)}, {torch.__version__}\n"
    )
    print(table(("", "images/s", "spread", "to the first", "to one task", "p50 ms", "p99 ms"), _rows(rates, latencies)))


def _in_turn(ways: dict[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(rounds):
        for name, run in itertools.islice(itertools.cycle(ways.items()), turn, turn + len(ways)):
            rates[name].append(run())
    return rates


def _rows(rates: dict[str, list[float]], latencies: dict[str, list[Load]]) -> Iterator[Sequence[str]]:
    first, one = list(rates)[:2]
    for name, values in rates.items():
        times = [
            f"{1000 * statistics.median(load.percentile(share) for load in latencies[name]):.0f}"
            if name in latencies
            else ""
            for share in (0.5, 0.99)
        ]
        ratios = [
            f"{statistics.median(a / b for a, b in zip(values, rates[other], strict=True)):.3f}"
            for other in (first, one)
        ]
        yield (name, f"{statistics.median(values):.1f}", f"{min(values):.1f} - {max(values):.1f}", *ratios, *times)


def _served(
    port: int,
    arguments: argparse.Namespace,
    pictures: Sequence[bytes],
    choose: Callable[[], str],
    latencies: list[Load],
) -> float:
    def request() -> bytes:
        return post(port, f"/v1/tasks/{choose()}/classify?top_k=1", random.choice(pictures))

    done = asyncio.run(load(port, arguments.concurrency, arguments.seconds, request))
    if done.others:
        raise RuntimeError(f"answers other than 200: {done.others}")
    latencies.append(done)
    return done.rate


def _bare(name: str, pictures: Sequence[bytes], seconds: float) -> float:
    """The same work without HTTP, queue and batching: a thread a core, each with batches of its own."""
    torch.set_num_threads(1)
    dtype = pick_dtype("auto", _CPU)
    backbone = load_backbone(default_backbone())
    backbone.vit.to(dtype)
    task = Task.load(task_path(name))
    model, preprocessing = task.build(backbone, dtype), task.header.preprocessing
    counts = [0] * cores()
    stop = time.perf_counter() + seconds

    def work(thread: int) -> None:
        torch.set_num_threads(1)
        while time.perf_counter() < stop:
            decoded = [to_rgb(Image.open(io.BytesIO(random.choice(pictures)))) for _ in range(_IMAGES)]
            pixels = torch.stack([preprocessing.resize(image) for image in decoded])
            with torch.inference_mode():
                model(preprocessing.normalize(pixels, dtype)).softmax(dim=1).topk(1)
            counts[thread] += _IMAGES

    threads = [threading.Thread(target=work, args=(i,)) for i in range(cores())]
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / (time.perf_counter() - started)


def _pictures() -> list[bytes]:
    """JPEGs of coloured areas, as large as an ordinary small photograph."""
    pictures = []
    for seed in range(_IMAGES):
        colours = np.random.default_rng(seed).integers(0, 256, (12, 16, 3), dtype=np.uint8)
        buffer = io.BytesIO()
        Image.fromarray(colours).resize(_SIZE, Image.Resampling.BICUBIC).save(buffer, "JPEG", quality=90)
        pictures.append(buffer.getvalue())
    return pictures


def _write_tasks(name: str, folder: Path) -> Path:
    """Tasks of one family: the embedded one, moved a little at random."""
    backbone, task = load_backbone(default_backbone()), Task.load(task_path(name))
    header = dataclasses.replace(
        task.header,
        adapter=dataclasses.replace(task.header.adapter, arguments={**task.header.adapter.arguments, "bits": 32}),
        reducer=dataclasses.replace(task.header.reducer, arguments={**task.header.reducer.arguments, "bits": 32}),
    )
    model = new_model(header, backbone)
    model.trainable().load_state_dict(task.build(backbone).trainable().state_dict())
    with torch.no_grad():
        for i in range(_TASKS):
            for parameter in model.trainable().parameters():
                parameter.add_(0.01 * torch.randn_like(parameter))
            save_task(folder / f"task-{i:02}.safetensors", dataclasses.replace(header, name=f"task-{i:02}"), model)
    return folder


@contextmanager
def _service(folder: Path) -> Iterator[int]:
    """`fpet serve` in a process of its own, until it is ready and then until the end of the block."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = ["serve", "--port", str(port), "--tasks", str(folder), "--log-level", "warning"]
    process = subprocess.Popen([sys.executable, "-m", "fpet.cli", *command], env=os.environ)
    try:
        while not _ready(port):
            if process.poll() is not None:
                raise RuntimeError("the service did not start")
            time.sleep(0.2)
        yield port
    finally:
        process.terminate()
        process.wait()


def _ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz") as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


if __name__ == "__main__":
    main()
