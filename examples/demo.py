"""Starts the service on its embedded default and classifies images that the model has never seen, over HTTP.

    make demo

The images are from the test sets of the tasks (`weights/samples/`). The token counts and the savings at the end are
the service's own; the last lines time the two forwards here, alternately, once the service has stopped. A speed-up is
the time without token reduction over the time with it.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.servers import StartError, fpet_serve
from fpet.backbone import load_backbone
from fpet.embedded import default_backbone, embedded, task_path, tasks_folder
from fpet.hardware.precision import DTYPES
from fpet.task import Task
from fpet.tensor_names import dtype_name
from fpet.vit import AdaptedViT
from service.hardware import name_dtype, pick_device
from service.model.calibration import measure_point
from service.settings import Settings

_COLUMNS = ("task", "adapter", "bytes", "right", "tokens", "ms", "the first of them: answer (probability)")
_ROW = "  {:<17} {:<12} {:>9} {:>9} {:>11} {:>6}   {}"
_TIMED = ("digits", "fashion-mnist")  # one with LoRA, one with AdaptFormer
_BATCH_SIZES = (1, 4, 16)
_REPEATS = 15


def get(address: str, path: str) -> Any:
    """The JSON that a GET returns."""
    with urllib.request.urlopen(address + path) as response:
        return json.load(response)


def classify(address: str, task: str, image: Path) -> Any:
    """Posts an image file as it is."""
    url = f"{address}/v1/tasks/{task}/classify?top_k=1"
    request = urllib.request.Request(url, image.read_bytes(), {"content-type": "image/png"})
    with urllib.request.urlopen(request) as response:
        return json.load(response)


def show_task(address: str, task: dict[str, Any]) -> None:
    """Classifies the task's sample images, one a request, and prints a row."""
    images = sorted((embedded() / "samples" / task["name"]).glob("*.png"), key=_position)
    answers = [classify(address, task["name"], image) for image in images]
    labels = [task["labels"][_position(image)[0]] for image in images]
    best = [answer["predictions"][0][0] for answer in answers]
    right = sum(one["label"] == label for one, label in zip(best, labels, strict=True))
    tokens = answers[0]["tokens"]
    milliseconds = statistics.median(answer["timings_ms"]["total"] for answer in answers)
    example = f"{labels[0]}: {best[0]['label']} ({best[0]['probability']:.2f})"
    counts = f"{tokens['in']} -> {tokens['out']}"
    row = (task["name"], task["adapter"], f"{task['bytes']:,}", f"{right} of {len(images)}", counts)
    print(_ROW.format(*row, f"{milliseconds:.1f}", example))


def _position(image: Path) -> tuple[int, ...]:
    """Class and position in the test set, which a sample's name says."""
    return tuple(int(number) for number in image.stem.split("-"))


def show_savings(address: str) -> None:
    """Prints what the service measured while it answered."""
    print("\nWhat token reduction saved in these requests, as the service reports it (GET /v1/savings)")
    for row in (row for row in get(address, "/v1/savings")["tasks"] if row["images"]):
        print(
            f"  {row['task']:<17} {row['images']} images  {row['calibrated_seconds'] * 1e3:.0f} ms, without reduction "
            f"{row['baseline_seconds'] * 1e3:.0f} ms: speed-up {row['speedup']:.3f}"
        )


def show_forward(names: Sequence[str]) -> None:
    """Times the forward with and without token reduction alternately, and prints medians, of the speed-up too."""
    settings = Settings()
    device = pick_device(settings.device)
    dtype = DTYPES[name_dtype(settings.dtype, device)]
    threads = settings.threads or 1
    torch.set_num_threads(threads)
    backbone = load_backbone(default_backbone())
    backbone.move(device, dtype)
    print(
        f"\nForward on {device} in {dtype_name(dtype)}, {threads} thread(s), with and without "
        f"token reduction, timed alternately, medians of {_REPEATS}, of the speed-up too"
    )
    for name in names:
        task = Task.load(task_path(name))
        model = task.build(backbone)
        for batch_size in _BATCH_SIZES:
            point = measure_point(batch_size, _REPEATS, stopwatch(model, batch_size, task.header.preprocessing.size))
            reduced, full = point.medians
            print(
                f"  {name:<17} batch {batch_size:<3} {model.tokens_in} -> {model.tokens_out} tokens "
                f"{reduced * 1e3:7.1f} ms, all tokens {full * 1e3:7.1f} ms: "
                f"speed-up {statistics.median(point.ratios):.3f}"
            )


def stopwatch(model: AdaptedViT, batch_size: int, size: tuple[int, int]) -> Callable[[bool], float]:
    """A function that runs one forward of random images, with reduction or without, and returns its seconds."""
    weight = next(model.vit.parameters())
    images = torch.randn((batch_size, 3, *size)).to(weight)
    models = {True: model, False: model.unreduced()}

    @torch.inference_mode()
    def seconds(reduced: bool) -> float:
        started = time.perf_counter()
        models[reduced](images).cpu()  # copying waits for the device
        return time.perf_counter() - started

    seconds(True), seconds(False)  # the first calls also allocate
    return seconds


def main() -> None:
    """The whole demonstration."""
    try:
        with fpet_serve(tasks_folder()) as server:
            address = f"http://127.0.0.1:{server.port}"
            tasks = get(address, "/v1/tasks")["tasks"]
            print("Images of the test sets, one a request\n" + _ROW.format(*_COLUMNS))
            for task in tasks:
                show_task(address, task)
            show_savings(address)
    except StartError as error:
        sys.exit(str(error))
    show_forward(_TIMED)


if __name__ == "__main__":
    main()
