"""Captured forwards answer what the others do, whichever weights and images are copied to where they read."""

from __future__ import annotations

import itertools
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from live_graphs import LiveGraphs
from small import BDM, METHODS, small_family

from fpet.errors import UnsupportedError
from fpet.hardware.graphs import CudaGraphs, Graphs
from fpet.header import Method
from fpet.inference.captured import Captured
from fpet.inference.mixed import Template
from fpet.inference.task_weights import Weights

pytestmark = pytest.mark.usefixtures("one_thread")
GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA graphs need a GPU")
IMAGES = torch.randn((4, 3, 16, 16), generator=torch.Generator().manual_seed(0))
LORA = Method("lora", {"dim": 4})


def capture(template: Template, graphs: Graphs, weights: Weights, batch_size: int = 4) -> Captured:
    captured = Captured(template, graphs, weights, batch_size, (16, 16))
    for mixed in (False, True):
        for reduced in (False, True):
            captured.capture(mixed=mixed, reduced=reduced)
    return captured


def check(folder: Path, adapter: Method, reducer: Method, graphs: Graphs, device: str) -> None:
    """Batches of every size one after the other, so that each finds what another left."""
    made = small_family(folder, adapter, reducer, device)
    each = [Weights.of(model) for model in made]
    template, images = Template(made[0]), IMAGES.to(device)
    captured = capture(template, graphs, each[0])
    for order in ((0, 1, 2, 1), (1, 1), (2, 0, 1), (2, 2, 2, 2), (1,), (0, 2)):
        own, some = [each[i] for i in order], images[: len(order)]
        for reduced in (True, False):
            with torch.inference_mode():
                expected = template.features(own, some, reduced=reduced)
                found = captured.features(own, some, reduced=reduced)
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
        images = images.flip(0)


@pytest.mark.parametrize(("adapter", "reducer"), METHODS, ids=str)
def test_answers_are_those_of_the_forward_itself(tmp_path: Path, adapter: Method, reducer: Method) -> None:
    check(tmp_path, adapter, reducer, LiveGraphs(), "cpu")


@GPU
@pytest.mark.parametrize(("adapter", "reducer"), [pair for pair in METHODS if pair[1].kind != "ltmp"], ids=str)
def test_captured_answers_on_a_gpu_are_those_of_the_forward(tmp_path: Path, adapter: Method, reducer: Method) -> None:
    check(tmp_path, adapter, reducer, CudaGraphs(torch.device("cuda")), "cuda")


def test_threads_do_not_take_each_others_memory(tmp_path: Path) -> None:
    made = small_family(tmp_path, LORA, BDM)
    each = [Weights.of(model) for model in made]
    template = Template(made[0])
    captured = capture(template, LiveGraphs(), each[0])
    with torch.inference_mode():
        expected = [template.features([weights], IMAGES[i : i + 1]) for i, weights in enumerate(each)]

    def ask(i: int) -> bool:
        return torch.allclose(captured.features([each[i]], IMAGES[i : i + 1]), expected[i], rtol=1e-4, atol=1e-4)

    with ThreadPoolExecutor(3) as pool:
        assert all(pool.map(ask, [0, 1, 2] * 50))


def test_an_answer_is_not_overwritten_by_the_next_replay(tmp_path: Path) -> None:
    made = small_family(tmp_path, LORA, BDM)
    weights = Weights.of(made[0])
    captured = capture(Template(made[0]), LiveGraphs(), weights)
    first = captured.features([weights], IMAGES[:1])
    before = first.clone()
    second = captured.features([weights], IMAGES[1:2])
    assert torch.equal(first, before)
    assert not torch.allclose(first, second)


def test_weights_are_left_alone(tmp_path: Path) -> None:
    made = small_family(tmp_path, LORA, BDM)
    each = [Weights.of(model) for model in made]
    before = [weights.flat.clone() for weights in each]
    captured = capture(Template(made[0]), LiveGraphs(), each[0])
    captured.features([each[1]] * 2, IMAGES[:2])
    captured.features(each, IMAGES[:3])
    assert all(torch.equal(weights.flat, own) for weights, own in zip(each, before, strict=True))


def test_what_it_is_not_for_is_refused(tmp_path: Path) -> None:
    made = small_family(tmp_path, LORA, BDM)
    weights = Weights.of(made[0])
    captured = capture(Template(made[0]), LiveGraphs(), weights, batch_size=2)
    other = Weights(weights.flat[:-32], weights.head, weights.bias)
    with pytest.raises(UnsupportedError, match="another family"):
        captured.features([other], IMAGES[:1])
    with pytest.raises(ValueError, match="each image has its weights: there are 1 for 2 images"):
        captured.features([weights], IMAGES[:2])
    with pytest.raises(ValueError, match="3 images, captured for at most 2"):
        captured.features([weights] * 3, IMAGES[:3])


def test_the_bytes_told_are_those_that_are_copied_to(tmp_path: Path) -> None:
    made = small_family(tmp_path, LORA, BDM)
    weights = Weights.of(made[0])
    captured = Captured(Template(made[0]), LiveGraphs(), weights, 4, (16, 16))
    assert captured.nbytes == 4 * (weights.flat.nbytes + 3 * 16 * 16 * 4)


class Pools:
    """What torch makes of the pools that graphs share: before a capture it forgets those that no graph is left of, and
    it refuses one that it has not forgotten.

    uses: graphs of each; meanwhile: what another thread does between the two.
    """

    def __init__(self) -> None:
        self.uses: Counter[int] = Counter()
        self.meanwhile: Callable[[], object] = lambda: None
        self._numbers = itertools.count(1)

    @contextmanager
    def capturing(self, graph: PooledGraph, pool: int | None, **_: object) -> Iterator[None]:
        self.uses = +self.uses
        self.meanwhile()
        number = next(self._numbers) if pool is None else pool
        if number in self.uses and not self.uses[number]:
            raise RuntimeError("use_count > 0 INTERNAL ASSERT FAILED")
        self.uses[number] += 1
        graph.number = number
        weakref.finalize(graph, lambda: self.uses.subtract([number]))
        yield


class PooledGraph:
    """number: of its pool."""

    number: int

    def pool(self) -> int:
        return self.number

    def replay(self) -> None:
        pass


@pytest.fixture
def pools(monkeypatch: pytest.MonkeyPatch) -> Pools:
    """In the place of those of a GPU."""
    pools, stream = Pools(), SimpleNamespace(wait_stream=lambda _: None)
    for name, pretended in {
        "device": nullcontext,
        "stream": nullcontext,
        "Stream": lambda _: stream,
        "current_stream": lambda: stream,
        "CUDAGraph": PooledGraph,
        "graph": pools.capturing,
    }.items():
        monkeypatch.setattr(torch.cuda, name, pretended)
    return pools


def test_graphs_share_a_pool_whichever_of_them_go(pools: Pools) -> None:
    graphs = CudaGraphs(torch.device("cuda"))
    replays = [graphs.capture(lambda: IMAGES) for _ in range(2)]
    assert list(pools.uses.values()) == [2]
    pools.meanwhile = replays.clear
    replays.append(graphs.capture(lambda: IMAGES))
    assert list(pools.uses.values()) == [1]
