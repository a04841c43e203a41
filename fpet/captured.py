"""A family's forwards, captured once for a number of images and replayed with whatever weights and images come.

A GPU computes a forward of few images in less time than it takes to launch its operators one by one. A CUDA graph
launches all of them at once, and reads and writes the same memory every time. What tasks of a family differ in are
numbers alone: they are copied there, so that one graph serves all of them, those that come later too.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import cache
from typing import Protocol
from weakref import WeakSet

import torch
from torch import Tensor

from fpet.mixed import Template, is_mixed
from fpet.task_weights import Weights

Forward = Callable[[], Tensor]


class Graphs(Protocol):
    """Captures forwards; lock: held by whoever captures or replays one, since all may compute in the same memory."""

    lock: threading.Lock

    def capture(self, forward: Forward) -> Forward:
        """What computes the same as `forward`, from the memory that it reads, again and into the same result."""


class CudaGraphs:
    """Graphs of one GPU. They share a pool of memory to compute in, so that those of one family more take little."""

    def __init__(self, device: torch.device) -> None:
        self.lock = _lock(device)
        self._device = device
        self._graphs: WeakSet[torch.cuda.CUDAGraph] = WeakSet()

    def capture(self, forward: Forward) -> Forward:
        """The result of a replay lasts until another graph is replayed.

        Raises:
            RuntimeError: if the forward waits for a number, or memory runs out; torch may then capture nothing more.
        """
        with torch.cuda.device(self._device):
            here, aside = torch.cuda.current_stream(), _stream(self._device)
            aside.wait_stream(here)
            with torch.cuda.stream(aside):
                forward()  # loads kernels and makes workspaces, neither of which is possible while capturing
            here.wait_stream(aside)
            graph = torch.cuda.CUDAGraph()
            # Held until this one is captured: torch has no pool that no graph is left of, or refuses it.
            other = next(iter(self._graphs), None)
            pool = None if other is None else other.pool()
            # Other threads may go on to use the GPU meanwhile; and torch leaves the stream only if nothing failed.
            mode = "thread_local"
            with (
                torch.cuda.stream(aside),
                torch.cuda.graph(graph, pool=pool, stream=aside, capture_error_mode=mode),
            ):
                result = forward()
            self._graphs.add(graph)

        def replay() -> Tensor:
            graph.replay()
            return result

        return replay


@cache
def _stream(device: torch.device) -> torch.cuda.Stream:
    """Always the same: for every stream that products are computed on torch keeps memory, tens of MiB, for good."""
    return torch.cuda.Stream(device)


@cache
def _lock(device: torch.device) -> threading.Lock:  # noqa: ARG001
    """Always the same too, as all graphs of a GPU are captured on that stream."""
    return threading.Lock()


class Captured:
    """The forwards of up to so many images of a family's tasks. Any thread may call the methods, all on one stream of
    the device, by which what one of them copies waits for what another replays.

    weights: of a task of the family, on the device and in the precision of all; size: (H, W) of the images.
    """

    def __init__(
        self, template: Template, graphs: Graphs, weights: Weights, batch_size: int, size: tuple[int, int]
    ) -> None:
        self._template = template
        self._graphs = graphs
        with torch.inference_mode():
            # Not those of a task: it would have the right answers from a graph that does not read them again.
            self._sites = weights.sites.new_zeros((batch_size, *weights.sites.shape))
            self._images = weights.sites.new_zeros((batch_size, 3, *size))
        self._replays: dict[tuple[bool, bool], Forward] = {}

    @property
    def nbytes(self) -> int:
        """Bytes of what is copied to for a forward."""
        return self._sites.nbytes + self._images.nbytes

    def capture(self, *, mixed: bool, reduced: bool) -> None:
        """Captures the forward of images of several tasks, or of one, with token reduction or without.

        Raises:
            RuntimeError: if it cannot be captured.
        """
        model = self._template.model(self._sites if mixed else self._sites[0], reduced=reduced)
        with self._graphs.lock, torch.inference_mode():
            self._replays[mixed, reduced] = self._graphs.capture(lambda: model.features(self._images))

    def features(self, each: Sequence[Weights], images: Tensor, *, reduced: bool = True) -> Tensor:
        """As `Template.features`, by a forward that was captured, of no more images than it is for.

        Raises:
            ValueError: for more images, or as `Template.features`.
            UnsupportedError: as `Template.features`.
        """
        self._template.check(each, images)
        mixed, count, most = is_mixed(each), len(images), len(self._images)
        if count > most:
            raise ValueError(f"{count} images, captured for at most {most}")
        replay = self._replays[mixed, reduced]
        with self._graphs.lock, torch.inference_mode():
            # Whatever lies in the rows beyond is computed with, and left out.
            if mixed:
                torch.stack([weights.sites for weights in each], out=self._sites[:count])
            else:
                self._sites[0].copy_(each[0].sites)
            self._images[:count].copy_(images)
            return replay()[:count].clone()  # before another forward takes its memory
