"""Graphs where there is no GPU: a replay computes the forward again, from the same memory into the same result."""

from __future__ import annotations

import inspect
import threading

import torch
from torch import Tensor

from fpet.hardware.graphs import Forward


class LiveGraphs:
    """captured: how many forwards were."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.captured = 0

    def capture(self, forward: Forward) -> Forward:
        assert self.lock.locked()
        self.captured += 1
        result = forward()

        def replay() -> Tensor:
            assert self.lock.locked()
            return result.copy_(forward())

        return replay


class Timed(LiveGraphs):
    """Whose replays take that long by the clock, or as long as what they repeat."""

    def __init__(self, now: list[float], seconds: float | None) -> None:
        super().__init__()
        self.now, self.seconds = now, seconds

    def capture(self, forward: Forward) -> Forward:
        live = super().capture(forward)

        def replay() -> Tensor:
            end = self.now[0] + (self.seconds or 0)
            result = live()
            if self.seconds:
                self.now[0] = end
            return result

        return replay


class Broken(LiveGraphs):
    """Cannot capture."""

    def capture(self, forward: Forward) -> Forward:  # noqa: ARG002
        raise RuntimeError("operation not permitted when stream is capturing")


class Stale(LiveGraphs):
    """Replays what was there when it captured, whatever is copied to where the forward reads."""

    def capture(self, forward: Forward) -> Forward:
        result = forward()
        return lambda: result


class OldWeights(LiveGraphs):
    """Replays with the weights that were there when it captured, and with the images that are there now."""

    def capture(self, forward: Forward) -> Forward:
        model = inspect.getclosurevars(forward).nonlocals["model"]
        for parameter in model.parameters():
            parameter.data = parameter.data.clone()
        return super().capture(forward)


class Garbled(LiveGraphs):
    """Replays into memory that holds no numbers."""

    def capture(self, forward: Forward) -> Forward:
        live = super().capture(forward)
        return lambda: live().fill_(torch.nan)
