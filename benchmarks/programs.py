"""Throughput of the service whose forwards are programs of TorchScript, timed in turn with one whose run in Python.

python -m benchmarks.programs
python -m benchmarks.programs --model vit-small --seconds 8
"""

from __future__ import annotations

import argparse
import asyncio
import random
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import median

import torch

from benchmarks.formats import cpu_format, in_it
from benchmarks.load import load, post
from benchmarks.markdown import table
from benchmarks.pictures import pictures
from benchmarks.rounds import in_turn, spread
from benchmarks.servers import READY, Server, fpet_command, serving
from benchmarks.tasks import EMBEDDED, MODELS, write_tasks
from fpet.hardware.cores import cores

_TASKS = 16
_WITHOUT = {"PYTORCH_JIT": "0"}  # with which torch makes no program


def main() -> None:
    """Measures and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=MODELS, default=EMBEDDED, help="others have random weights")
    parser.add_argument("--rounds", type=int, default=5, help="how often each is timed, in turn (default: 5)")
    parser.add_argument("--seconds", type=float, default=4, help="of each timing (default: 4)")
    parser.add_argument(
        "--concurrency", type=int, nargs="+", default=[1, 4, 32], help="requests in flight (default: 1 4 32)"
    )
    arguments = parser.parse_args()
    images, rows = pictures(), []
    with tempfile.TemporaryDirectory() as folder:
        tasks = write_tasks(Path(folder), arguments.model, "fashion-mnist", _TASKS)
        options = [*in_it(), "--backbone", str(tasks.backbone), "--folded-bytes", "0"]
        command = fpet_command(tasks.folder, *options)
        with serving(command, READY) as programs, serving(command, READY, _WITHOUT) as python:
            for concurrency in arguments.concurrency:
                for names in (tasks.names[:1], tasks.names):
                    ask = partial(_rate, concurrency, arguments.seconds, images, names)
                    ways = {"programs": partial(ask, programs), "python": partial(ask, python)}
                    in_turn(ways, 1)  # once unheard: the first requests of a server are slower
                    rates = in_turn(ways, arguments.rounds)
                    each = [a / b for a, b in zip(rates["programs"], rates["python"], strict=True)]
                    rows.append((f"{concurrency}", f"{len(names)}", f"{median(each):.3f}", spread(each, 2)))
            memory = (programs.memory() - python.memory()) / 2**20
    print(
        f"{arguments.model}, {arguments.rounds} rounds of {arguments.seconds:g} s, {cores()} cores, "
        f"{cpu_format()}, {torch.__version__}; {memory:+.0f} MiB\n"
    )
    print(table(("in flight", "tasks", "throughput, to that in Python", "in a round"), rows))


def _rate(concurrency: int, seconds: float, images: Sequence[bytes], names: Sequence[str], server: Server) -> float:
    def request() -> bytes:
        return post(server.port, f"/v1/tasks/{random.choice(names)}/classify?top_k=1", random.choice(images))

    return asyncio.run(load(server.port, concurrency, seconds, request)).require_success().rate


if __name__ == "__main__":
    main()
