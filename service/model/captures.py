"""Captured forwards (CUDA graphs) of the families in service, for 1, 2, 4, ... images, where measured to be faster."""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from fpet.comparison import normal
from fpet.errors import UnsupportedError
from fpet.hardware.graphs import CudaGraphs, Graphs
from fpet.hardware.paired_timing import alternate
from fpet.inference.captured import Captured
from fpet.inference.mixed import is_mixed
from fpet.inference.task_weights import Weights
from service.model.loaded import Family
from service.model.sizes import interpolated

logger = logging.getLogger(__name__)

_REPEATS, _LONGEST_TRIAL = 5, 1.0
# Relative difference of embeddings. What goes wrong with memory makes another picture of them; rounding differently,
# which may let two tokens merge that are all but as similar as two others, does not.
_TOLERANCE = 0.1


class _Kind(NamedTuple):
    """What tells forwards of a family apart: whether they are of several tasks, and whether they reduce tokens."""

    mixed: bool
    reduced: bool


class _Way(NamedTuple):
    """Forwards of so many images; replayed, launched: seconds of the captured one, and of the other."""

    captured: Captured
    replayed: float
    launched: float


class _Own:
    """The captured forwards of a family, and the numbers of images that were tried."""

    def __init__(self) -> None:
        self.tried: set[int] = set()
        self.ways: defaultdict[_Kind, dict[int, _Way]] = defaultdict(dict)


class Captures:
    """Captured forwards by family, each used where it is no slower. Any thread may call the methods."""

    def __init__(self, graphs: Graphs) -> None:
        self._graphs = graphs
        self._lock = threading.Lock()
        self._families: WeakKeyDictionary[Family, _Own] = WeakKeyDictionary()
        self._failed = False

    @property
    def bytes(self) -> int:
        """Bytes of the memory that weights and images are copied to."""
        with self._lock:
            ways = [way for own in self._families.values() for each in own.ways.values() for way in each.values()]
            return sum(captured.nbytes for captured in {way.captured for way in ways})

    def find(self, family: Family, weights: Sequence[Weights], *, reduced: bool) -> Captured | None:
        """The captured forward for images with these weights, one each, if replaying it is no slower than launching."""
        with self._lock:
            own = self._families.get(family)
            ways = own.ways[_Kind(is_mixed(weights), reduced)] if own is not None else {}
            size = min((size for size in ways if size >= len(weights)), default=None)
            if size is None:
                return None
            launched = interpolated([(other, ways[other].launched) for other in sorted(ways)], len(weights))
            return ways[size].captured if ways[size].replayed <= launched else None

    def wants(self, family: Family, batch_size: int) -> bool:
        """Whether forwards of so many images are still to be captured, which is tried once.

        Never for families whose number of tokens varies: their forwards wait for a number from the device. Nor for
        those that do not mix: a graph's copy of weights as large as the backbone's takes as much memory once more.
        """
        with self._lock:
            own = self._families.get(family)
            tried = own is not None and batch_size in own.tried
        return not (tried or self._failed or family.template.tokens_vary) and family.template.mixes

    def add(self, family: Family, batches: Sequence[Sequence[Weights]], size: tuple[int, int]) -> None:
        """Captures forwards of as many images as each batch has weights; all have as many. size: (H, W).

        If one fails, the log says so, its batches run as without it, and nothing is captured any more: torch may not
        be able to.
        """
        with self._lock:
            own = self._families.setdefault(family, _Own())
            own.tried.add(len(batches[0]))
        try:
            self._capture(family, own, batches, size)
        except RuntimeError as error:  # of torch, for too little memory and whatever a graph does not do
            self._failed = True
            logger.warning("forwards are not captured any more: %s", error, exc_info=error)

    def _capture(self, family: Family, own: _Own, batches: Sequence[Sequence[Weights]], size: tuple[int, int]) -> None:
        count, like = len(batches[0]), batches[0][0]
        captured = Captured(family.template, self._graphs, like, count, size)
        images = normal(count, 3, *size).to(like.flat)
        for weights in batches:
            for reduced in (True, False) if family.reduces else (True,):
                kind = _Kind(is_mixed(weights), reduced)
                way = self._try(family, captured, weights, images, kind)
                with self._lock:
                    own.ways[kind][count] = way

    @staticmethod
    def _try(family: Family, captured: Captured, weights: Sequence[Weights], images: Tensor, kind: _Kind) -> _Way:
        """Captures a forward and times it beside the other. Raises RuntimeError if it is not the same."""
        captured.capture(mixed=kind.mixed, reduced=kind.reduced)

        def features(replayed: bool) -> Tensor:
            forward = captured if replayed else family.template
            return forward.features(weights, images, reduced=kind.reduced).float().cpu()  # which waits for the device

        def seconds(replayed: bool) -> float:
            started = time.perf_counter()
            features(replayed)
            return time.perf_counter() - started

        with torch.inference_mode():
            wrong = (features(True) - features(False)).norm() / features(False).norm()
            if not wrong <= _TOLERANCE:
                raise RuntimeError(f"its embeddings differ by {wrong:.2g} of their length")
            replayed, launched = map(median, alternate(_REPEATS, seconds, longest=_LONGEST_TRIAL))
        logger.info(
            "%d images, %s, take %.2f ms captured and %.2f ms not",
            len(weights),
            "of several tasks" if kind.mixed else "of a task",
            1000 * replayed,
            1000 * launched,
        )
        return _Way(captured, replayed, launched)


def start_captures(device: torch.device) -> Captures:
    """Captures of a GPU's forwards.

    Raises:
        UnsupportedError: if the device is no GPU.
    """
    if device.type != "cuda":
        raise UnsupportedError(f"cuda_graphs is for a GPU, and the service is on the {device.type}")
    return Captures(CudaGraphs(device))
