"""A family's forwards, captured once for a number of images and replayed with whatever weights and images come.

A GPU computes a forward of few images in less time than it takes to launch its operators one by one. A CUDA graph
launches all of them at once, and reads and writes the same memory every time. Tasks of a family differ in the values of
their weights alone: these are copied there, so that one graph serves all tasks of the family, those that are loaded
later too.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fpet.hardware.graphs import Forward, Graphs
from fpet.inference.mixed import Template, is_mixed
from fpet.inference.task_weights import Weights


class Captured:
    """Captured forwards of a family's tasks for up to `batch_size` images. Any thread may call the methods, all on one
    stream of the device, so that a copy into the inputs waits for the replays that still read them.

    weights: of a task of the family, on the device and in the precision of all; size: (H, W) of the images.
    """

    def __init__(
        self, template: Template, graphs: Graphs, weights: Weights, batch_size: int, size: tuple[int, int]
    ) -> None:
        self._template = template
        self._graphs = graphs
        with torch.inference_mode():
            # Zeros, not a task's weights, so that a graph that fails to read its inputs again gives wrong answers to
            # that task too.
            self._flat = weights.flat.new_zeros((batch_size, *weights.flat.shape))
            self._images = weights.flat.new_zeros((batch_size, 3, *size))
        self._replays: dict[tuple[bool, bool], Forward] = {}

    @property
    def nbytes(self) -> int:
        """Bytes of the inputs that weights and images are copied to."""
        return self._flat.nbytes + self._images.nbytes

    def capture(self, *, mixed: bool, reduced: bool) -> None:
        """Captures the forward of images of several tasks, or of one, with token reduction or without.

        Raises:
            RuntimeError: if it cannot be captured.
        """
        model = self._template.model(self._flat if mixed else self._flat[0], reduced=reduced)
        with self._graphs.lock, torch.inference_mode():
            self._replays[mixed, reduced] = self._graphs.capture(lambda: model.features(self._images))

    def features(self, weights: Sequence[Weights], images: Tensor, *, reduced: bool = True) -> Tensor:
        """As `Template.features`, by a forward that was captured, of no more images than it is for.

        Raises:
            ValueError: for more images, or as `Template.features`.
            UnsupportedError: as `Template.features`.
        """
        self._template.check(weights, images)
        mixed, count, most = is_mixed(weights), len(images), len(self._images)
        if count > most:
            raise ValueError(f"{count} images, captured for at most {most}")
        replay = self._replays[mixed, reduced]
        with self._graphs.lock, torch.inference_mode():
            # Rows from `count` on hold older inputs: they are computed with, and left out of the result.
            if mixed:
                torch.stack([one.flat for one in weights], out=self._flat[:count])
            else:
                self._flat[0].copy_(weights[0].flat)
            self._images[:count].copy_(images)
            return replay()[:count].clone()  # before another forward takes its memory
