"""What SSF and BitFit share: a map per channel after every norm and linear map of a plain Vision Transformer.

Norms that few backbones have stay as they are: within attention and MLP, before the first block, and after the pooling
where another comes before it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from torch import Tensor, nn

from fpet.adapters.base import Adapter, BlockAdapter
from fpet.tokens import Geometry


class ChannelwiseBlock(BlockAdapter):
    """After norm1, qkv, proj, norm2, fc1 (before its activation) and fc2; `make` takes a number of channels."""

    def __init__(self, channels: int, mlp_dim: int, make: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.norm1, self.norm2 = make(channels), make(channels)
        self.after_qkv, self.after_proj = make(3 * channels), make(channels)
        self.after_fc1, self.after_fc2 = make(mlp_dim), make(channels)

    def qkv(self, layer: nn.Module, h: Tensor) -> Tensor:
        return cast(Tensor, self.after_qkv(layer(self.norm1(h))))

    def proj(self, layer: nn.Module, h: Tensor) -> Tensor:
        return cast(Tensor, self.after_proj(layer(h)))

    def fc1(self, layer: nn.Module, h: Tensor) -> Tensor:
        return cast(Tensor, self.after_fc1(layer(self.norm2(h))))

    def fc2(self, layer: nn.Module, h: Tensor) -> Tensor:
        return cast(Tensor, self.after_fc2(layer(h)))


class Channelwise(Adapter):
    """Also after the patch embedding and the final norm."""

    foldable = True

    def __init__(self, geometry: Geometry, make: Callable[[int], nn.Module]) -> None:
        blocks = (ChannelwiseBlock(geometry.embed_dim, geometry.mlp_dim, make) for _ in range(geometry.depth))
        super().__init__(blocks)
        self.after_embed, self.after_norm = make(geometry.embed_dim), make(geometry.embed_dim)

    def patch_embed(self, layer: nn.Module, images: Tensor) -> Tensor:
        return cast(Tensor, self.after_embed(layer(images)))

    def norm(self, layer: nn.Module, x: Tensor) -> Tensor:
        return cast(Tensor, self.after_norm(layer(x)))
