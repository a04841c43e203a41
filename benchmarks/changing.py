"""Many tasks in one process: memory a task, memory after loading and unloading, and how soon a new task answers.

python -m benchmarks.changing
"""

from __future__ import annotations

import argparse
import gc
import itertools
import statistics
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

import torch

from benchmarks.formats import CPU, cpu_dtype, cpu_format
from benchmarks.markdown import table
from benchmarks.servers import held
from benchmarks.variations import write_variations
from fpet.backbone import Backbone, create_backbone, load_backbone
from fpet.embedded import default_backbone
from fpet.hardware.allocator import return_freed_memory
from fpet.header import Method
from fpet.inference.task_weights import Weights
from fpet.task import new_model
from fpet.untrained import at_middle_block, new_header
from service.catalog import Catalog
from service.engine import Engine
from service.metrics import Metrics
from service.model.loaded import LoadedTask, resident_bytes
from service.model.work import BatchKey, Work

_CLASSES = 10
_MIB = 2**20
_TIMINGS = 30


def main() -> None:
    """Measures and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--architecture", help="timm's name, with random weights (default: the embedded backbone)")
    parser.add_argument("--dim", type=int, default=8, help="of the LoRA that the tasks are (default: 8)")
    parser.add_argument("--bits", type=int, default=32, help="a weight of it (default: 32)")
    parser.add_argument("--tasks", type=int, default=1000, help="how many are loaded at once (default: 1000)")
    parser.add_argument("--cycles", type=int, default=200, help="of loading and unloading one (default: 200)")
    arguments = parser.parse_args()
    if arguments.tasks < 2:
        parser.error("--tasks: two at least, since the first one takes what all share")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    backbone = create_backbone(arguments.architecture) if arguments.architecture else load_backbone(default_backbone())
    with tempfile.TemporaryDirectory() as folder:
        _write_tasks(backbone, Path(folder), arguments.tasks, {"dim": arguments.dim, "bits": arguments.bits})
        rows = _measure(backbone, Path(folder), arguments.tasks, arguments.cycles)
    name = arguments.architecture or "the embedded backbone"
    print(f"{name}, {cpu_format()}, one thread, torch {torch.__version__}\n")
    print(table(("", ""), rows))


def _measure(backbone: Backbone, folder: Path, tasks: int, cycles: int) -> list[tuple[str, str]]:
    dtype = cpu_dtype()
    backbone.move("cpu", dtype)
    metrics = Metrics([], [])
    engine = Engine(backbone, CPU, dtype, metrics)
    catalog = Catalog(folder, engine.load, metrics, max_bytes=2**30)
    names = [entry.name for entry in catalog.entries.all()]
    size = (folder / f"{names[0]}.safetensors").stat().st_size
    _load(catalog, names[:1])  # which also takes what a family takes once
    before, started = _resident(), time.perf_counter()
    _load(catalog, names[1:])
    seconds = (time.perf_counter() - started) / (tasks - 1)
    each = (_resident() - before) / (tasks - 1)
    first_half = _cycled(catalog, names[0], cycles // 2)
    second_half = _cycled(catalog, names[0], cycles - cycles // 2)
    times, forwards = [], []
    for i in range(_TIMINGS):
        times.append(_answer_time(engine, catalog, names[i % tasks]))
        task = catalog.entries.loaded(names[i % tasks])
        forwards.append(engine.seconds(BatchKey(task.family, True), task, 1))
    return [
        ("bytes of a task file", f"{size:,}"),
        (
            "bytes of a task's tensors, as the service tells them",
            f"{resident_bytes(catalog.entries.serving()) / tasks:,.0f}",
        ),
        (f"resident bytes a task, {tasks:,} loaded", f"{each:,.0f}"),
        ("ratio to the file", f"{each / size:.2f}"),
        ("ms to load a task", f"{1000 * seconds:.1f}"),
        (f"MiB resident after {cycles // 2} cycles, change", f"{first_half / _MIB:+.1f}"),
        (f"after {cycles}, change since", f"{second_half / _MIB:+.1f}"),
        (
            f"ms from the bytes of a file to the first answer, median of {_TIMINGS}",
            f"{1000 * statistics.median(times):.1f}",
        ),
        ("largest", f"{1000 * max(times):.1f}"),
        ("that median, to a forward of one image", f"{statistics.median(times) / statistics.median(forwards):.2f}"),
        *_unpacking(engine, catalog.entries.loaded(names[0])),
    ]


def _load(catalog: Catalog, names: Iterable[str]) -> None:
    for name in names:
        if catalog.load(name).state != "loaded":
            raise RuntimeError(f"{name}: {catalog.entries.require(name).reason}")


def _write_tasks(backbone: Backbone, folder: Path, count: int, lora: dict[str, object]) -> None:
    """Task files that differ in their weights: LoRA and BDM in the middle block."""
    adapter, reducer = Method("lora", lora), at_middle_block(Method("bdm"), backbone.geometry.depth)
    header = new_header("task", tuple(map(str, range(_CLASSES))), backbone, adapter=adapter, reducer=reducer)
    write_variations(folder, header, new_model(header, backbone), count)


def _cycled(catalog: Catalog, name: str, cycles: int) -> int:
    before = _resident()
    for _ in range(cycles):
        catalog.unload(name)
        catalog.load(name)
    return _resident() - before


def _answer_time(engine: Engine, catalog: Catalog, name: str) -> float:
    """Seconds to check, build and try a task, write its file, and classify an image."""
    data = catalog.entries.require(name).path.read_bytes()
    catalog.unload(name)  # what serves already would stay as it is
    started = time.perf_counter()
    task = catalog.put(name, data).task
    if task is None:
        raise RuntimeError(f"{name} is not in service")
    pixels = torch.zeros((3, *task.header.preprocessing.size), dtype=torch.uint8)
    engine.run(BatchKey(task.family, True), [Work(task, pixels)])
    return time.perf_counter() - started


def _unpacking(engine: Engine, task: LoadedTask) -> list[tuple[str, str]]:
    """What a batch takes longer where its task is packed and no longer kept."""
    if isinstance(task.weights, Weights):
        return []
    seconds: dict[bool, list[float]] = {True: [], False: []}
    for _, unpacks in itertools.product(range(_TIMINGS), seconds):
        started = time.perf_counter()
        if unpacks:
            task.weights.unpack()
        else:
            engine.seconds(BatchKey(task.family, True), task, 1)
        seconds[unpacks].append(time.perf_counter() - started)
    ratio = statistics.median(seconds[True]) / statistics.median(seconds[False])
    return [("time to dequantise a task, to that of a forward of one image", f"{ratio:.3f}")]


def _resident() -> int:
    """Bytes of this process in memory."""
    gc.collect()
    return_freed_memory()  # else the next tasks would fill it and seem to take none
    return held(Path("/proc/self/status"))["VmRSS"]


if __name__ == "__main__":
    main()
