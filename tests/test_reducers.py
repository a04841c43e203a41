"""Reducers leave as many tokens as announced, those that their methods say, and refuse what does not fit."""

from __future__ import annotations

import re

import pytest
import torch
from reduced import PATCH, backbone_of, reduced
from torch import Tensor, nn

from fpet.adapters import build_adapter
from fpet.errors import UnsupportedError
from fpet.methods import VIT_BASE
from fpet.reducers import build_reducer
from fpet.reducers.base import BlockReducer, ReducerAtBlocks
from fpet.reducers.pool import AveragePoolBlock
from fpet.reducers.tome import ToMeBlock
from fpet.tokens import Layout, Tokens
from fpet.vit import AdaptedViT


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


@pytest.mark.parametrize(
    ("kind", "grid", "block", "named"),
    [
        ("bdm", (1, 1), 0, "1 patches would merge into 0"),
        ("bsm", (1, 1), 0, "0 patches would merge into 1"),
        ("bdm", (1, 8), [0, 1], "0 patches would merge into 4"),  # what is left of a row lies on one colour
        ("bdm", (8, 1), [0, 1], "4 patches would merge into 0"),
        ("average-pool", (8, 1), 0, "0 patches would merge into 8"),
    ],
)
def test_a_reduction_that_would_merge_nothing_is_refused(
    kind: str, grid: tuple[int, int], block: int | list[int], named: str
) -> None:
    geometry = backbone_of(grid, "class token").geometry
    with pytest.raises(UnsupportedError, match=named):
        build_reducer(kind, geometry, Layout.of(geometry), {"block": block})


@pytest.mark.parametrize(
    ("kind", "arguments", "tokens"),
    [
        ("bdm", {"block": 0}, 99),
        ("bdm", {"block": [0, 1]}, 50),
        ("bsm", {"block": 1}, 99),
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


class _Last(BlockReducer):
    """Leaves the last token out, and does not say so."""

    def forward(self, tokens: Tokens, query: Tensor, key: Tensor) -> Tokens:  # noqa: ARG002
        return Tokens(tokens.x[:, :-1], None)


@pytest.mark.parametrize("training", [False, True])
def test_another_number_than_announced_is_refused(training: bool) -> None:
    backbone = backbone_of((3, 3), "class token")
    geometry = backbone.geometry
    thinning = ReducerAtBlocks(geometry, Layout.of(geometry), 1, _Last)
    model = AdaptedViT(backbone, build_adapter("none", geometry, {}), thinning, nn.Identity()).train(training)
    with pytest.raises(UnsupportedError, match="ReducerAtBlocks leaves 9 tokens, where its layout_out says 10"):
        model(torch.randn(1, 3, 3 * PATCH, 3 * PATCH))


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


def test_what_needs_fixed_places_is_refused_after_moved_tokens() -> None:
    layout = Layout.of(backbone_of((14, 14), "class token").geometry).unordered(merged=8)
    with pytest.raises(UnsupportedError, match="fixed places"):
        layout.checkerboard()
    with pytest.raises(UnsupportedError, match="fixed places"):
        AveragePoolBlock(layout)


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
@pytest.mark.parametrize(("grid", "prefix"), [((4, 6), "class token"), ((3, 5), "registers")], ids=str)
def test_pooling_is_torch_pooling_of_the_grid(grid: tuple[int, int], prefix: str, maximum: bool) -> None:
    rows, columns = grid
    torch.manual_seed(0)
    geometry = backbone_of(grid, prefix).geometry
    prefixes = geometry.num_prefix_tokens
    reducer = build_reducer("max-pool" if maximum else "average-pool", geometry, Layout.of(geometry), {"block": 0})
    x = torch.randn(2, prefixes + rows * columns, 8)
    unused = torch.empty(0)
    pooled, _ = reducer.blocks[0](Tokens(x, None), unused, unused)
    image = x[:, prefixes:].mT.unflatten(-1, grid)
    if maximum:
        expected = nn.functional.max_pool2d(image, (1, 2), ceil_mode=True)
    else:
        expected = nn.functional.avg_pool2d(image, (1, 2), ceil_mode=True, count_include_pad=False)
    torch.testing.assert_close(pooled[:, prefixes:], expected.flatten(2).mT)
    assert torch.equal(pooled[:, :prefixes], x[:, :prefixes])


@pytest.mark.parametrize("kind", ["average-pool", "max-pool"])
def test_pooling_twice_is_pooling_of_the_patches_that_each_token_stands_for(kind: str) -> None:
    torch.manual_seed(0)
    geometry = backbone_of((3, 7), "class token").geometry
    reducer = build_reducer(kind, geometry, Layout.of(geometry), {"block": [0, 1]})
    x, unused = torch.randn(2, 1 + 3 * 7, 8), torch.empty(0)
    pooled, size = reducer.blocks[1](reducer.blocks[0](Tokens(x, None), unused, unused), unused, unused)
    image = x[:, 1:].mT.unflatten(-1, (3, 7))
    if kind == "max-pool":
        expected = nn.functional.max_pool2d(image, (1, 4), ceil_mode=True)
    else:
        expected = nn.functional.avg_pool2d(image, (1, 4), ceil_mode=True, count_include_pad=False)
    torch.testing.assert_close(pooled[:, 1:], expected.flatten(2).mT)
    assert size[0, :, 0].tolist() == [1.0, *([4.0, 3.0] * 3)]


def test_a_block_that_is_named_twice_is_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"block = \[1, 1\]: a block is named twice"):
        build_reducer("bsm", VIT_BASE, Layout.of(VIT_BASE), {"block": [1, 1]})
