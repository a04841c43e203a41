"""The sites of a block at which a parameter-efficient tuning method may act; by default none of them does."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import ClassVar, cast

from torch import Tensor, nn


class BlockAdapter(nn.Module):
    """One block's share of a method. A method overrides the sites that its formula touches.

    The linear sites get the frozen layer and its input, so that a method may change the input, the weight or the
    output, also in place: a hook that keeps a layer's output must clone it. All tensors are [B, N, C] unless said
    otherwise.
    """

    def enter(self, x: Tensor) -> Tensor:
        """The residual stream as the block receives it."""
        return x

    def qkv(self, layer: nn.Module, h: Tensor) -> Tensor:
        """Queries, keys and values [B, N, 3C] of the normalised tokens h."""
        return cast(Tensor, layer(h))

    def proj(self, layer: nn.Module, h: Tensor) -> Tensor:
        """Output projection of the attention."""
        return cast(Tensor, layer(h))

    def fc1(self, layer: nn.Module, h: Tensor) -> Tensor:
        """First layer of the MLP: the normalised tokens h -> [B, N, mlp_dim]."""
        return cast(Tensor, layer(h))

    def fc2(self, layer: nn.Module, h: Tensor) -> Tensor:
        """Second layer of the MLP: [B, N, mlp_dim] -> [B, N, C]."""
        return cast(Tensor, layer(h))

    def attn_branch(self, branch: Tensor, x: Tensor, h: Tensor) -> Tensor:  # noqa: ARG002
        """What the attention adds to the residual stream x; h = norm1(x). The branch may be written into."""
        return branch

    def mlp_branch(self, branch: Tensor, x: Tensor, h: Tensor) -> Tensor:  # noqa: ARG002
        """What the MLP adds to the residual stream x; h = norm2(x). The branch may be written into."""
        return branch


class Adapter(nn.Module):
    """One method's modules for a whole network: one `BlockAdapter` a block, and the three sites outside the blocks.

    foldable: whether every site is affine in its input, and the branches and the number of tokens are left alone.
    needs_grid: whether every block must see all patches in their places, so that no reduction can go with it.
    mixes: whether its weights are few enough to be stacked, one set an image, in a batch of different tasks. Then every
    parameter must take a batch axis in front, as in `LowBitLinear`, `fpet.linear.linear` and `per_token`; `nn.Linear`
    does not.
    decays: whether weight decay acts on its weights, drawing them to zero; False where zero is not the neutral value,
    as for SSF's scale, whose neutral value is 1.
    training_only: arguments without meaning at inference, where weights are dequantised and nothing is dropped.
    scaled: name suffixes, such as "up.weight", of the parameters that the argument `scale` can be multiplied into, so
    that tasks with different scales can share a batch. If it is empty, they cannot.
    """

    foldable: ClassVar[bool] = False
    needs_grid: ClassVar[bool] = False
    mixes: ClassVar[bool] = True
    decays: ClassVar[bool] = True
    training_only: ClassVar[frozenset[str]] = frozenset({"bits", "dropout"})
    scaled: ClassVar[tuple[str, ...]] = ()

    def __init__(self, blocks: Iterable[BlockAdapter], num_prompts: int = 0) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.num_prompts = num_prompts

    def patch_embed(self, layer: nn.Module, images: Tensor) -> Tensor:
        """Images [B, 3, H, W] -> patch tokens [B, P, C]."""
        return cast(Tensor, layer(images))

    def pos_embed(self, layer: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """Patch tokens [B, P, C] -> all tokens [B, N, C], prefix tokens first, with their position embeddings."""
        return layer(x)

    def norm(self, layer: nn.Module, x: Tensor) -> Tensor:
        """The final norm [B, N, C] -> [B, N, C]; N is 1 where it comes after the pooling."""
        return cast(Tensor, layer(x))


def why_not_folded(adapter: Adapter) -> str:
    """The reason why an adapter cannot be folded, as a clause for an error message."""
    if adapter.num_prompts:
        return "its prompts are tokens, which the backbone has no weights for"
    return "it does more than change layers by affine maps"
