"""Captured steps train as steps do that are launched operator by operator."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable

import pytest
import torch
from live_graphs import Broken, LiveGraphs
from small import METHODS, small_backbone, small_header
from torch import Tensor
from torch.nn import functional as F

from fpet.data import Dataset
from fpet.hardware.graphs import CudaGraphs, Graphs
from fpet.header import Method
from fpet.task import new_model
from fpet.training.captured_step import captured
from fpet.training.mixed_precision import mixed_precision
from fpet.training.recipe import Recipe
from fpet.training.run import Run

pytestmark = pytest.mark.usefixtures("one_thread")
GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA graphs need a GPU")
STEPS, BATCH = 6, 8
IMAGES = torch.randn((STEPS * BATCH, 3, 16, 16), generator=torch.Generator().manual_seed(0))
TARGETS = torch.arange(STEPS * BATCH) % 10


def trained(
    adapter: Method, reducer: Method, device: str, precision: str, graphs: Graphs | None
) -> tuple[list[float], dict[str, Tensor]]:
    """The loss of each step, and the weights after all; without graphs nothing is captured. Dropout is on."""
    backbone = small_backbone()
    backbone.move(device)
    images, targets = IMAGES.to(device), TARGETS.to(device)
    autocast, scaler = mixed_precision(torch.device(device), precision)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = new_model(small_header(backbone, adapter, reducer), backbone, drop_path=0.5).train()
        optimizer = torch.optim.SGD(model.trainable().parameters(), lr=0.1)

        def gradients(batch: Tensor) -> Tensor:
            with autocast:
                tokens, sizes = model.encode(images[batch])
                logits = model.head(model.pool(tokens)).float()
            loss = F.cross_entropy(logits, targets[batch]) + model.reducer.penalty(sizes)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            return loss.detach()

        step: Callable[[Tensor], Tensor] | None = gradients
        batches = torch.randperm(len(IMAGES)).to(device).split(BATCH)
        if graphs is not None:
            step = captured(gradients, batches[-1], graphs)
            assert step is not None
        losses = []
        for batch in batches:
            losses.append(step(batch).item())
            scaler.step(optimizer)
            scaler.update()
    return losses, {name: value.cpu() for name, value in model.trainable().state_dict().items()}


@pytest.mark.parametrize(("adapter", "reducer"), METHODS, ids=str)
def test_losses_and_weights_are_the_same(adapter: Method, reducer: Method) -> None:
    losses, weights = trained(adapter, reducer, "cpu", "float32", None)
    replayed, others = trained(adapter, reducer, "cpu", "float32", LiveGraphs())
    assert replayed == losses
    torch.testing.assert_close(others, weights, rtol=0, atol=0)


@GPU
@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize(("adapter", "reducer"), METHODS, ids=str)
def test_losses_and_weights_are_the_same_on_a_gpu(adapter: Method, reducer: Method, precision: str) -> None:
    losses, weights = trained(adapter, reducer, "cuda", precision, None)
    replayed, others = trained(adapter, reducer, "cuda", precision, CudaGraphs(torch.device("cuda")))
    # Sums of gradients come in any order there; rounded, they may decide otherwise which tokens merge.
    close = 1e-3 if precision == "float32" else 0.1
    assert replayed == pytest.approx(losses, rel=close)
    if precision == "float32":
        torch.testing.assert_close(others, weights, rtol=close, atol=close)


def test_what_cannot_be_captured_is_said(caplog: pytest.LogCaptureFixture) -> None:
    batch = torch.arange(3)
    with caplog.at_level(logging.INFO, "fpet"):
        assert captured(lambda one: one.float().mean(), batch, Broken()) is None
    assert "operation not permitted when stream is capturing" in caplog.text


@GPU
def test_what_waits_for_a_number_is_not_captured(caplog: pytest.LogCaptureFixture) -> None:
    batch = torch.arange(3, device="cuda")

    def waiting(one: Tensor) -> Tensor:
        return one.float().mean() * math.sqrt(one.sum().item())

    with caplog.at_level(logging.INFO, "fpet"):
        assert captured(waiting, batch, CudaGraphs(batch.device)) is None
    assert "cannot be captured" in caplog.text
    # And torch is none the worse: it draws random numbers, and captures what can be.
    assert torch.rand(3, device="cuda").sum().item() > 0
    step = captured(lambda one: one.float().mean(), batch, CudaGraphs(batch.device))
    assert step is not None
    assert step(batch + 1).item() == 2


def test_capturing_draws_no_random_numbers_of_the_run() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        expected = torch.rand(3)
        torch.manual_seed(0)
        assert captured(lambda one: one.float().mean() + torch.rand(()), torch.arange(3), LiveGraphs()) is not None
        assert torch.equal(torch.rand(3), expected)


@GPU
def test_a_run_frees_its_graph(digits: Dataset) -> None:
    backbone = small_backbone()
    backbone.move("cuda")

    def used() -> int:
        run = Run(small_header(backbone), backbone, digits, Recipe(epochs=1, batch_size=16))
        with torch.random.fork_rng():
            run.advance(lambda: None)
        del run
        return torch.cuda.memory_allocated()

    used()  # what torch keeps for itself, once
    assert len({used() for _ in range(3)}) == 1
