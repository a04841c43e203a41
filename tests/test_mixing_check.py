"""Methods of other packages share batches only if each image's answer is that by its own weights."""

from __future__ import annotations

import pytest
import torch
from small import small_backbone, small_header
from torch import Tensor, nn

from fpet.adapters.base import Adapter, BlockAdapter
from fpet.adapters.none import LinearProbe
from fpet.errors import UnsupportedError
from fpet.inference.mixed import Template
from fpet.linear import LowBitLinear
from fpet.reducers.base import BlockReducer, Reducer
from fpet.reducers.none import NoReduction
from fpet.task import new_model
from fpet.tokens import Layout, Tokens
from fpet.vit import AdaptedViT

pytestmark = pytest.mark.usefixtures("one_thread")
DTYPES = [torch.float32, torch.bfloat16]


class PlainBlock(BlockAdapter):
    """A linear map as torch has it, whose weight takes no batch axis."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.change = nn.Linear(channels, channels)

    def mlp_branch(self, branch: Tensor, x: Tensor, h: Tensor) -> Tensor:  # noqa: ARG002
        return branch + self.change(h)


class NormedBlock(PlainBlock):
    """Takes a batch axis by its shapes alone: over the first axis of a batch the norm is one over tasks."""

    def mlp_branch(self, branch: Tensor, x: Tensor, h: Tensor) -> Tensor:  # noqa: ARG002
        return branch + h @ nn.functional.normalize(self.change.weight, dim=0)


class ScaledBlock(PlainBlock):
    """Scales by the largest weight, which in a batch is that of any task: equal weights would not show it."""

    def mlp_branch(self, branch: Tensor, x: Tensor, h: Tensor) -> Tensor:  # noqa: ARG002
        return branch + h @ self.change.weight / self.change.weight.abs().amax()


class FirstBlock(PlainBlock):
    """Gives every image the weights of the first."""

    def mlp_branch(self, branch: Tensor, x: Tensor, h: Tensor) -> Tensor:  # noqa: ARG002
        weight = self.change.weight
        return branch + h @ (weight if weight.ndim == 2 else weight[0])


class WordlessBlock(PlainBlock):
    """Refuses a batch axis without a word."""

    def mlp_branch(self, branch: Tensor, x: Tensor, h: Tensor) -> Tensor:
        if self.change.weight.ndim != 2:
            raise NotImplementedError
        return super().mlp_branch(branch, x, h)


class BrokenBlock(PlainBlock):
    """Takes a batch axis, but what it makes are no numbers, with which every comparison is false."""

    def mlp_branch(self, branch: Tensor, x: Tensor, h: Tensor) -> Tensor:  # noqa: ARG002
        return branch + (h @ self.change.weight).log()


class RightBlock(BlockAdapter):
    """As ours do it."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.change = LowBitLinear(channels, channels)

    def mlp_branch(self, branch: Tensor, x: Tensor, h: Tensor) -> Tensor:  # noqa: ARG002
        return branch + self.change(h)


class ForeignAdapter(Adapter):
    """Not one of ours, of which the tests try all pairs."""


class AloneAdapter(ForeignAdapter):
    """Says that it cannot."""

    mixes = False


class PlainReduction(BlockReducer):
    """Leaves out the second half of the patches and changes the rest by a map whose weight takes no batch axis."""

    def __init__(self, layout: Layout, head_dim: int) -> None:
        super().__init__(Layout(layout.num_prefix_tokens, layout.cells[: len(layout.cells) // 2]))
        self.gain = nn.Linear(head_dim, 1)

    def forward(self, tokens: Tokens, query: Tensor, key: Tensor) -> Tokens:  # noqa: ARG002
        kept = self.layout_out.num_tokens
        return Tokens(tokens.x[:, :kept] * self.weights(key.mean(1)[:, :kept]), None)

    def weights(self, key: Tensor) -> Tensor:
        return self.gain(key).sigmoid()


class SharedReduction(PlainReduction):
    """The mean of a weight, which in a batch is one over all tasks."""

    def weights(self, key: Tensor) -> Tensor:  # noqa: ARG002
        return self.gain.weight.mean().exp()


class RightReduction(PlainReduction):
    """As ours do it."""

    def __init__(self, layout: Layout, head_dim: int) -> None:
        super().__init__(layout, head_dim)
        self.gain = LowBitLinear(head_dim, 1)

    def weights(self, key: Tensor) -> Tensor:
        return self.gain(key).sigmoid()


class ForeignReducer(Reducer):
    """Of one block, the second."""

    def __init__(self, model: AdaptedViT, block: type[PlainReduction]) -> None:
        geometry = model.backbone.geometry

        def make(index: int, layout: Layout) -> BlockReducer:
            return block(layout, geometry.head_dim) if index == 1 else BlockReducer(layout)

        super().__init__(geometry, Layout.of(geometry), make)


class AloneReducer(ForeignReducer):
    """Says that it cannot."""

    mixes = False


def with_adapter(block: type[BlockAdapter], dtype: torch.dtype, adapter: type[Adapter] = ForeignAdapter) -> AdaptedViT:
    """A model with a foreign adapter and no reduction."""
    backbone = small_backbone()
    geometry, head = backbone.geometry, new_model(small_header(backbone), backbone).head
    torch.manual_seed(0)
    blocks = adapter(block(geometry.embed_dim) for _ in range(geometry.depth))  # type: ignore[call-arg]
    model = AdaptedViT(backbone, blocks, NoReduction(geometry, Layout.of(geometry)), head)
    return model.to(dtype)


def with_reducer(
    block: type[PlainReduction], dtype: torch.dtype, reducer: type[ForeignReducer] = ForeignReducer
) -> AdaptedViT:
    """A model with a foreign reduction and no adapter."""
    backbone = small_backbone()
    made = new_model(small_header(backbone), backbone)
    torch.manual_seed(0)
    model = AdaptedViT(backbone, LinearProbe(backbone.geometry), reducer(made, block), made.head)
    return model.to(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("block", [PlainBlock, NormedBlock, ScaledBlock, FirstBlock, BrokenBlock])
def test_an_adapter_whose_weights_take_no_batch_axis_mixes_only_by_its_own_account(
    block: type[PlainBlock], dtype: torch.dtype
) -> None:
    with pytest.raises(UnsupportedError, match=r"^the weights of ForeignAdapter .*`mixes = False` on the adapter"):
        Template(with_adapter(block, dtype))


def test_an_error_without_words_is_told_by_its_name() -> None:
    with pytest.raises(UnsupportedError, match=r"^the weights of ForeignAdapter .* \(NotImplementedError\)"):
        Template(with_adapter(WordlessBlock, torch.float32))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("block", [PlainReduction, SharedReduction])
def test_a_reduction_whose_weights_take_no_batch_axis_mixes_only_by_its_own_account(
    block: type[PlainReduction], dtype: torch.dtype
) -> None:
    with pytest.raises(UnsupportedError, match=r"^the weights of ForeignReducer .*`mixes = False` on the reduction"):
        Template(with_reducer(block, dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_methods_that_do_it_as_ours_do_are_taken(dtype: torch.dtype) -> None:
    for model in (with_adapter(RightBlock, dtype), with_reducer(RightReduction, dtype)):
        assert Template(model).mixes


def test_who_says_that_it_does_not_mix_is_taken_and_does_not() -> None:
    for model in (
        with_adapter(PlainBlock, torch.float32, AloneAdapter),
        with_reducer(PlainReduction, torch.float32, AloneReducer),
    ):
        assert not Template(model).mixes
