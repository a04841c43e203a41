"""Matching keeps every token: in any precision, on any picture, grid and prefix."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from reduced import PATCH, PREFIXES, backbone_of, reduced
from torch import Tensor, nn

from fpet.reducers import REDUCERS, build_reducer
from fpet.reducers.matching import assign, merge
from fpet.tokens import Layout, Tokens

GRIDS = [(14, 14), (7, 7), (15, 15), (12, 16), (8, 32)]


def pictures(rows: int, columns: int) -> dict[str, Tensor]:
    torch.manual_seed(0)
    shape = (2, 3, rows * PATCH, columns * PATCH)
    patch = torch.randn(2, 3, PATCH, PATCH)
    tiled = patch.repeat(1, 1, rows, columns)
    tiled[:, :, :PATCH, :PATCH] = 1.0
    return {"noise": torch.randn(shape), "constant": torch.full(shape, 0.5), "identical patches": tiled}


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("grid", GRIDS, ids=lambda grid: f"{grid[0]}x{grid[1]}")
def test_sizes_sum_to_the_number_of_tokens(grid: tuple[int, int], prefix: str) -> None:
    model = reduced("bdm", {"block": 0}, grid, prefix)
    num_prefix = PREFIXES[prefix][2]
    num_patches = grid[0] * grid[1]
    assert model.tokens_in == num_prefix + num_patches
    assert model.tokens_out == num_prefix + num_patches // 2
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        model.to(dtype)
        for name, images in pictures(*grid).items():
            with torch.inference_mode():
                x, size = model.tokens(images.to(dtype))
            assert size is not None
            assert x.shape[1] == model.tokens_out
            assert x.isfinite().all(), (name, dtype)
            assert torch.equal(size.sum(dim=1), torch.full((2, 1), float(model.tokens_in))), (name, dtype)
            assert torch.equal(size[:, :num_prefix], torch.ones(2, num_prefix, 1)), (name, dtype)
            assert (size >= 1).all(), (name, dtype)


@pytest.mark.parametrize(
    ("kind", "arguments"), [("bdm", {"block": 0}), ("bsm", {"block": 0}), ("tome", {}), ("ltmp", {})]
)
def test_matches_are_those_of_the_keys_in_float32(kind: str, arguments: dict[str, object]) -> None:
    geometry = backbone_of((14, 14), "class token").geometry
    block = build_reducer(kind, geometry, Layout.of(geometry), arguments).eval().blocks[0]
    torch.manual_seed(0)
    x = torch.randn(32, 197, geometry.embed_dim)
    key = (torch.randn(32, 3, 1, geometry.head_dim) + 0.3 * torch.randn(32, 3, 197, geometry.head_dim)).bfloat16()
    with torch.inference_mode():
        merged, exact = block(Tokens(x, None), key, key), block(Tokens(x, None), key.float(), key.float())
    assert exact.size.max() > 2
    assert torch.equal(merged.size, exact.size)
    assert torch.equal(merged.x, exact.x)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("kind", REDUCERS)
def test_under_autocast_tokens_are_reduced_as_without_it(kind: str, training: bool) -> None:
    geometry = backbone_of((14, 14), "class token").geometry
    arguments: dict[str, object] = {} if kind in ("none", "tome", "ltmp") else {"block": 0}
    torch.manual_seed(0)
    block = build_reducer(kind, geometry, Layout.of(geometry), arguments).train(training).blocks[0]
    for module in block.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    tokens = Tokens(torch.randn(2, 197, geometry.embed_dim), torch.randint(1, 9, (2, 197, 1)).float())
    query, key = torch.randn(2, 2, 3, 197, geometry.head_dim)
    with torch.inference_mode():
        exact = block(tokens, query, key)
        with torch.autocast("cpu", torch.bfloat16):
            rounded = block(tokens, query, key)
    assert torch.equal(rounded.x, exact.x)
    assert torch.equal(rounded.size, exact.size)


def test_training_under_autocast_keeps_every_token() -> None:
    model = reduced("bdm", {"block": 0}).train()
    with torch.autocast("cpu", torch.bfloat16):
        _, size = model.tokens(torch.full((2, 3, 56, 56), 0.5))
    assert size is not None
    assert torch.equal(size.detach().sum(dim=1), torch.full((2, 1), 197.0))


def test_merging_conserves_the_weighted_sum_of_tokens() -> None:
    torch.manual_seed(0)
    layout = Layout(2, tuple((i, j) for i in range(5) for j in range(7)))
    a, b, after = layout.checkerboard()
    x, size = torch.randn(3, 37, 8), torch.randint(1, 9, (3, 37, 1)).float()
    assignment = assign(torch.randn(3, len(a), len(b)), differentiable=False)
    merged = merge(Tokens(x, size), assignment, torch.tensor(a), torch.tensor(b))
    assert merged.size is not None
    assert merged.x.shape == (3, after.num_tokens, 8)
    torch.testing.assert_close((merged.x * merged.size).sum(1), (x * size).sum(1))
    assert torch.equal(merged.size.sum(1), size.sum(1))


@pytest.mark.parametrize("learned", [False, True])
def test_sizes_have_a_gradient_only_where_the_matching_learns(learned: bool) -> None:
    torch.manual_seed(0)
    x, chosen = torch.randn(2, 6, 4, requires_grad=True), torch.eye(3).repeat(2, 1, 1).requires_grad_(learned)
    merged = merge(Tokens(x, None), chosen, torch.tensor([0, 2, 4]), torch.tensor([1, 3, 5]))
    assert merged.size is not None
    assert merged.x.requires_grad
    assert merged.size.requires_grad is learned


def test_a_tie_goes_to_one_target() -> None:
    scores = torch.zeros(1, 4, 3)
    for differentiable in (False, True):
        assert torch.equal(assign(scores, differentiable).sum(dim=-1), torch.ones(1, 4))


def test_where_there_is_one_target_all_go_there() -> None:
    scores = torch.tensor([[[0.25], [-0.5]]], requires_grad=True)
    assignment = assign(scores, differentiable=True)
    assert assignment.tolist() == [[[1.0], [1.0]]]
    assignment.sum().backward()
    torch.testing.assert_close(scores.grad, torch.zeros(1, 2, 1))  # its own score is the mean of the best


def test_assignment_has_the_straight_through_gradient() -> None:
    torch.manual_seed(0)
    scores = torch.randn(2, 5, 6, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(2, 5, 6, dtype=torch.float64)
    (assign(scores, differentiable=True) * weights).sum().backward()
    soft_scores = scores.detach().requires_grad_()
    best = soft_scores.topk(2, dim=-1).values.mean(dim=-1, keepdim=True)
    (torch.sigmoid(soft_scores - best) * weights).sum().backward()
    torch.testing.assert_close(scores.grad, soft_scores.grad)


def test_an_image_is_merged_alone_as_in_a_batch() -> None:
    model = reduced("bdm", {"block": 0})
    images = torch.cat(list(pictures(14, 14).values()))
    with torch.inference_mode():
        together = model.tokens(images)
        for i in range(images.shape[0]):
            alone = model.tokens(images[i : i + 1])
            assert together.size is not None
            assert alone.size is not None
            assert torch.equal(alone.size[0], together.size[i])
            torch.testing.assert_close(alone.x[0], together.x[i], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "arguments", "merges"),
    [
        ("bdm", {"refine": False}, lambda place: sum(divmod(place - 1, 7)) % 2 == 0),  # on a checkerboard
        ("bsm", {}, lambda place: place % 2 == 0),
    ],
    ids=["bdm", "bsm"],
)
def test_each_token_that_merges_does_so_with_the_one_of_the_most_similar_key(
    kind: str, arguments: dict[str, object], merges: Callable[[int], bool]
) -> None:
    geometry = backbone_of((5, 7), "class token").geometry
    block = build_reducer(kind, geometry, Layout.of(geometry), {"block": 0, **arguments}).eval().blocks[0]
    torch.manual_seed(0)
    x, key = torch.randn(2, 36, geometry.embed_dim), torch.randn(2, 3, 36, geometry.head_dim)
    merged = block(Tokens(x, None), key, key)
    for image, metric in enumerate(key.mean(dim=1)):
        groups = {place: [place] for place in range(36) if place == 0 or not merges(place)}
        targets = list(groups)[1:]
        for place in filter(merges, range(1, 36)):
            similar = [float(nn.functional.cosine_similarity(metric[place], metric[one], dim=0)) for one in targets]
            groups[targets[similar.index(max(similar))]].append(place)
        assert merged.size[image, :, 0].tolist() == [len(group) for group in groups.values()]
        expected = torch.stack([x[image, group].mean(dim=0) for group in groups.values()])
        torch.testing.assert_close(merged.x[image], expected)


@pytest.mark.parametrize("stop_gradient", [True, False])
def test_the_gradient_stop_keeps_the_matching_from_the_keys(stop_gradient: bool) -> None:
    backbone = backbone_of((7, 7), "class token")
    geometry = backbone.geometry
    reducer = build_reducer(
        "bdm", geometry, Layout.of(geometry), {"block": 0, "dropout": 0.0, "stop_gradient": stop_gradient}
    )
    key = torch.randn(1, 3, 50, 16, requires_grad=True)
    merged, _ = reducer.train().blocks[0](Tokens(torch.randn(1, 50, 48), None), key, key)
    merged.square().sum().backward()
    assert (key.grad is None) == stop_gradient


def test_the_refinement_learns_in_evaluation_mode_too() -> None:
    """Whoever switches dropout off by it trains on."""
    geometry = backbone_of((7, 7), "class token").geometry
    torch.manual_seed(0)
    reducer = build_reducer("bdm", geometry, Layout.of(geometry), {"block": 0, "dropout": 0.0})
    tokens, key = Tokens(torch.randn(1, 50, 48), None), torch.randn(1, 3, 50, 16)
    gradients = []
    for training in (True, False):
        merged, _ = reducer.train(training).blocks[0](tokens, key, key)
        gradients.append(torch.autograd.grad(merged.square().sum(), list(reducer.parameters())))
    assert all(one.abs().sum() > 0 for one in gradients[0])
    assert all(map(torch.equal, *gradients))
