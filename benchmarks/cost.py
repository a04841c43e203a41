"""What the commands share that tell what token reduction saves: options, and timing a model without it and with it."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from functools import partial

import torch

from benchmarks.rounds import in_turn
from fpet.backbone import Backbone, create_backbone
from fpet.commands import method_options, options
from fpet.hardware.precision import DTYPES
from fpet.header import Method

Methods = tuple[Method, Method]  # adapter and reducer


def parser(description: str | None, *, repeats: int) -> argparse.ArgumentParser:
    """Options for architecture, methods, device, precision, and how many times each is timed."""
    root = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    root.add_argument("--repeats", type=options.positive, default=repeats, help="timed of each (default: %(default)s)")
    root.add_argument("--precision", choices=DTYPES, default="float32", help="(default: %(default)s)")
    root.add_argument("--device", default="cpu", help="torch device, cpu or cuda[:N] (default: %(default)s)")
    options.add_architecture(root)
    root.set_defaults(architecture="vit_base_patch16_224")
    method_options.add_methods(root)
    return root


def backbone(arguments: argparse.Namespace, dtype: torch.dtype | None = None) -> Backbone:
    """The one that is asked for, of random weights, on its device."""
    made = create_backbone(arguments.architecture, arguments.architecture_arguments)
    made.move(arguments.device, dtype)
    return made


def without_and_with(arguments: argparse.Namespace, depth: int) -> tuple[Methods, Methods]:
    """The adapter alone, and with the reduction."""
    adapter, reducer = method_options.methods(arguments, depth)
    return (adapter, Method("none")), (adapter, reducer)


def times(ways: Mapping[str, Callable[[], object]], repeats: int, warm_up: int) -> dict[str, list[float]]:
    """Seconds of each way, which is done when it returns, in turn; those of the warm-up do not count."""
    timed = in_turn({name: partial(_seconds, way) for name, way in ways.items()}, warm_up + repeats)
    return {name: seconds[warm_up:] for name, seconds in timed.items()}


def conditions(arguments: argparse.Namespace, adapter: Method) -> str:
    """Of model and machine."""
    device = torch.device(arguments.device)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    return f"{arguments.architecture} with {adapter.kind}, {arguments.precision}, {name}, torch {torch.__version__}"


def _seconds(way: Callable[[], object]) -> float:
    start = time.perf_counter()
    way()
    return time.perf_counter() - start
