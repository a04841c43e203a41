"""A training step's forward and backward, captured once and replayed for whatever batch comes."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from fpet.hardware.graphs import Graphs
from fpet.training.randomness import random_state_kept
from fpet.words import reason

logger = logging.getLogger(__name__)

Gradients = Callable[[Tensor], Tensor]


def captured(gradients: Gradients, batch: Tensor, graphs: Graphs) -> Gradients | None:
    """A function that replays `gradients` for batches of this one's shape, dtype and device; None, and a line in the
    log, if it cannot be captured.

    A GPU computes a step of few images in less time than it takes to launch its operators one by one; of a backbone of
    usual size that is true of 64 images in bfloat16. A graph launches all of them at once.

    gradients: computes a batch's gradients into `grad` of the parameters and returns the loss, detached. It is called a
    few times here; the random numbers that it draws meanwhile are drawn again afterwards. Loss and gradients of a
    replay last until the next. Never set a parameter's `grad` to None afterwards: replays write into the tensors that
    were captured.
    """
    own = batch.clone()

    def of_own() -> Tensor:
        return gradients(own)

    with random_state_kept(own.device), graphs.lock:
        try:
            of_own()  # which copies to the GPU what is kept there
            with _refusing_to_wait(own.device):  # after a capture that failed torch could draw no random numbers
                of_own()
            replay = graphs.capture(of_own)
        except RuntimeError as error:
            logger.info("steps are launched operator by operator, as they cannot be captured: %s", reason(error))
            return None

    def replayed(batch: Tensor) -> Tensor:
        with graphs.lock:
            own.copy_(batch)
            return replay()

    return replayed


@contextmanager
def _refusing_to_wait(device: torch.device) -> Iterator[None]:
    """Within it operations that wait for a number from the GPU raise RuntimeError, in the whole process."""
    if device.type != "cuda":
        yield
        return
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that some of what waits is not noticed
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)
