"""Matching keeps every token: in any precision, on any picture, grid and prefix."""

from __future__ import annotations

import re

import pytest
import torch
from torch import Tensor, nn

from fpet.adapters import build_adapter
from fpet.backbone import Backbone, create_backbone
from fpet.errors import UnsupportedError
from fpet.reducers import build_reducer
from fpet.reducers.matching import assign, merge
from fpet.reducers.pool import PoolBlock
from fpet.reducers.tome import ToMeBlock
from fpet.tokens import Layout, Tokens
from fpet.vit import AdaptedViT

PATCH = 4
GRIDS = [(14, 14), (7, 7), (15, 15), (12, 16), (8, 32)]
PREFIXES: dict[str, tuple[str, dict[str, object], int]] = {
    "class token": ("vit_tiny_patch16_224", {}, 1),
    "class and distillation tokens": ("deit_tiny_distilled_patch16_224", {}, 2),
    "registers": ("vit_tiny_patch16_224", {"reg_tokens": 4}, 5),
    "no prefix": ("vit_tiny_patch16_224", {"class_token": False, "global_pool": "avg"}, 0),
}


def pictures(rows: int, columns: int) -> dict[str, Tensor]:
    torch.manual_seed(0)
    shape = (2, 3, rows * PATCH, columns * PATCH)
    patch = torch.randn(2, 3, PATCH, PATCH)
    tiled = patch.repeat(1, 1, rows, columns)
    tiled[:, :, :PATCH, :PATCH] = 1.0
    return {"noise": torch.randn(shape), "constant": torch.full(shape, 0.5), "identical patches": tiled}


def backbone_of(grid: tuple[int, int], prefix: str) -> Backbone:
    architecture, arguments, _ = PREFIXES[prefix]
    torch.manual_seed(0)
    size = (grid[0] * PATCH, grid[1] * PATCH)
    small: dict[str, object] = {
        "img_size": size, "patch_size": PATCH, "embed_dim": 48, "depth": 2, "num_heads": 3
    }  # fmt: skip
    return create_backbone(architecture, {**small, **arguments})


def bdm(backbone: Backbone) -> AdaptedViT:
    geometry = backbone.geometry
    reducer = build_reducer("bdm", geometry, Layout.of(geometry), {"block": 0})
    return AdaptedViT(backbone, build_adapter("none", geometry, {}), reducer, nn.Identity()).eval()


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("grid", GRIDS, ids=lambda grid: f"{grid[0]}x{grid[1]}")
def test_sizes_sum_to_the_number_of_tokens(grid: tuple[int, int], prefix: str) -> None:
    model = bdm(backbone_of(grid, prefix))
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


def test_training_under_autocast_keeps_every_token() -> None:
    model = bdm(backbone_of((14, 14), "class token")).train()
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


def test_a_tie_goes_to_one_target() -> None:
    scores = torch.zeros(1, 4, 3)
    for differentiable in (False, True):
        assert torch.equal(assign(scores, differentiable).sum(dim=-1), torch.ones(1, 4))


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
    model = bdm(backbone_of((14, 14), "class token"))
    images = torch.cat(list(pictures(14, 14).values()))
    with torch.inference_mode():
        together = model.tokens(images)
        for i in range(images.shape[0]):
            alone = model.tokens(images[i : i + 1])
            assert together.size is not None
            assert alone.size is not None
            assert torch.equal(alone.size[0], together.size[i])
            torch.testing.assert_close(alone.x[0], together.x[i], rtol=1e-4, atol=1e-5)


def test_a_second_checkerboard_leaves_every_other_row_and_column() -> None:
    layout = Layout(1, tuple((i, j) for i in range(14) for j in range(14)))
    _, b, once = layout.checkerboard()
    _, c, twice = once.checkerboard()
    kept = {divmod(b[i - 1] - 1, 14) for i in c}
    assert (once.num_tokens, twice.num_tokens) == (99, 50)
    assert kept == {(i, j) for i in range(0, 14, 2) for j in range(1, 14, 2)}
    neighbours = [{(i, j), (i, j + 1)} <= set(twice.cells) for i, j in twice.cells]
    assert sum(neighbours) == 42


@pytest.mark.parametrize(
    ("kind", "arguments", "named"),
    [
        ("magic", {}, "unknown kind 'magic'"),
        ("bdm", {}, "'block'"),
        ("bdm", {"block": 2}, "blocks are 0 to 1"),
        ("bdm", {"block": -1}, "blocks are 0 to 1"),
        ("bdm", {"block": "6"}, "block = '6' is not of type int"),
        ("bdm", {"block": True}, "block = True is not of type int"),
        ("bdm", {"block": 0, "bits": 3}, "bits = 3"),
        ("bdm", {"block": 0, "dim": 0}, "empty"),
        ("none", {"block": 0}, "none has no argument 'block'"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(kind: str, arguments: dict[str, object], named: str) -> None:
    geometry = backbone_of((7, 7), "class token").geometry
    with pytest.raises(UnsupportedError, match=named):
        build_reducer(kind, geometry, Layout.of(geometry), arguments)


def test_a_single_patch_has_nothing_to_merge_into() -> None:
    geometry = backbone_of((1, 1), "class token").geometry
    with pytest.raises(UnsupportedError, match="nothing to merge into"):
        build_reducer("bdm", geometry, Layout.of(geometry), {"block": 0})


def reduced(kind: str, arguments: dict[str, object], grid: tuple[int, int] = (14, 14)) -> AdaptedViT:
    backbone = backbone_of(grid, "class token")
    geometry = backbone.geometry
    reducer = build_reducer(kind, geometry, Layout.of(geometry), arguments)
    return AdaptedViT(backbone, build_adapter("none", geometry, {}), reducer, nn.Identity()).eval()


@pytest.mark.parametrize(
    ("kind", "arguments", "tokens"),
    [
        ("bdm", {"block": 0}, 99),
        ("bdm", {"block": [0, 1]}, 50),
        ("bsm", {"block": 1}, 99),
        ("bsm", {"block": 1, "checkerboard": True}, 99),
        ("bsm", {"block": [0, 1]}, 50),
        ("tome", {"r": 8}, 181),
        ("tome", {"r": [0, 16]}, 181),
        ("tome", {"r": 500}, 50),
        ("average-pool", {"block": 0}, 99),
        ("max-pool", {"block": [0, 1]}, 57),
    ],
)
def test_lengths_are_as_announced(kind: str, arguments: dict[str, object], tokens: int) -> None:
    model = reduced(kind, arguments)
    with torch.inference_mode():
        x, size = model.tokens(torch.randn(2, 3, 56, 56))
    assert size is not None
    assert x.shape[1] == model.tokens_out == tokens
    assert torch.equal(size.sum(dim=1), torch.full((2, 1), 197.0))


@pytest.mark.parametrize(
    ("kind", "arguments", "named"),
    [
        ("tome", {"r": [8]}, "one a block, of which there are 2"),
        ("tome", {"r": -1}, "r = -1"),
        ("tome", {"r": 1.5}, "r = 1.5 is not of type"),
        ("bdm", {"block": []}, "blocks are 0 to 1"),
        ("bsm", {"block": [0, 5]}, "blocks are 0 to 1"),
    ],
)
def test_schedules_that_do_not_fit_are_refused(kind: str, arguments: dict[str, object], named: str) -> None:
    with pytest.raises(UnsupportedError, match=re.escape(named)):
        reduced(kind, arguments)


def test_tome_stops_when_nothing_is_left_to_merge() -> None:
    model = reduced("tome", {"r": 500}, grid=(1, 3))
    with torch.inference_mode():
        x, size = model.tokens(torch.randn(1, 3, PATCH, 3 * PATCH))
    assert size is not None
    assert x.shape[1] == model.tokens_out
    assert size.sum() == 4


def test_a_checkerboard_after_moved_tokens_is_refused() -> None:
    layout = Layout.of(backbone_of((14, 14), "class token").geometry).unordered(merged=8)
    with pytest.raises(UnsupportedError, match="fixed places"):
        layout.checkerboard()


def test_tome_merges_the_most_similar_pairs() -> None:
    """Against a restatement of the paper's algorithm, token by token."""
    torch.manual_seed(0)
    layout = Layout(1, tuple((0, column) for column in range(9)))
    x, key = torch.randn(1, 10, 6), torch.randn(1, 2, 10, 4)
    merged, size = ToMeBlock(layout, r=2)(Tokens(x, None), key, key)
    metric = nn.functional.normalize(key.mean(dim=1), dim=-1)[0]
    even, odd = [2, 4, 6, 8], [1, 3, 5, 7, 9]
    best = {i: max(odd, key=lambda j: float(metric[i] @ metric[j])) for i in even}
    chosen = sorted(even, key=lambda i: -float(metric[i] @ metric[best[i]]))[:2]
    groups = {j: [j] + [i for i in chosen if best[i] == j] for j in odd}
    expected = [x[0, 0]] + [x[0, i] for i in even if i not in chosen] + [x[0, groups[j]].mean(dim=0) for j in odd]
    torch.testing.assert_close(merged[0], torch.stack(expected))
    assert size is not None
    assert size[0, :, 0].tolist() == [1.0, 1.0, 1.0, *(float(len(groups[j])) for j in odd)]


@pytest.mark.parametrize("maximum", [False, True])
@pytest.mark.parametrize("grid", [(4, 6), (3, 5)], ids=str)
def test_pooling_is_torch_pooling_of_the_grid(grid: tuple[int, int], maximum: bool) -> None:
    rows, columns = grid
    torch.manual_seed(0)
    layout = Layout(1, tuple((i, j) for i in range(rows) for j in range(columns)))
    x = torch.randn(2, 1 + rows * columns, 8)
    unused = torch.empty(0)
    pooled, _ = PoolBlock(layout, maximum)(Tokens(x, None), unused, unused)
    image = x[:, 1:].mT.unflatten(-1, grid)
    if maximum:
        expected = nn.functional.max_pool2d(image, (1, 2), ceil_mode=True)
    else:
        expected = nn.functional.avg_pool2d(image, (1, 2), ceil_mode=True, count_include_pad=False)
    torch.testing.assert_close(pooled[:, 1:], expected.flatten(2).mT)
    assert torch.equal(pooled[:, 0], x[:, 0])


def test_bdm_without_refinement_is_bsm_on_a_checkerboard() -> None:
    images = torch.randn(2, 3, 56, 56)
    with torch.inference_mode():
        plain = reduced("bdm", {"block": 0, "refine": False})(images)
        torch.testing.assert_close(plain, reduced("bsm", {"block": 0, "checkerboard": True})(images))


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
