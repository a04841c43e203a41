"""CUDA graphs: a GPU's work, captured once and replayed from the same memory, all of its operators launched at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache
from typing import Protocol
from weakref import WeakSet

import torch
from torch import Tensor

Forward = Callable[[], Tensor]


class Graphs(Protocol):
    """Captures forwards; lock: held by whoever captures or replays one, since all may compute in the same memory."""

    lock: threading.Lock

    def capture(self, forward: Forward) -> Forward:
        """A function that computes `forward` again, from the same input memory into the same result tensor."""


class CudaGraphs:
    """Graphs of one GPU. They share a pool of memory for intermediate results, so that the graphs of one more family
    take little."""

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
            # Held until this one is captured: torch drops a pool when its last graph goes, or refuses it.
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
    """One stream for all captures: torch keeps tens of MiB of workspace for good for every stream that products run
    on."""
    return torch.cuda.Stream(device)


@cache
def _lock(device: torch.device) -> threading.Lock:  # noqa: ARG001
    """One lock for a GPU, as all of its graphs are captured on that stream."""
    return threading.Lock()
