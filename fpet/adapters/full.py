"""Full tuning: every weight of the backbone is trained, as its difference from the frozen one, which stays shared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fpet.adapters.base import Adapter, BlockAdapter
from fpet.linear import linear, per_token
from fpet.tokens import Geometry, Layout


class LinearChange(nn.Module):
    """W x + b -> (W + dW) x + (b + db), [B, N, in] -> [B, N, out]; dW: [out, in], db: [out]; both start at zero."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(out_features, in_features))
        self.bias = nn.Parameter(torch.zeros(out_features))

    def forward(self, layer: nn.Module, h: Tensor) -> Tensor:
        frozen = cast(nn.Linear, layer)
        bias = self.bias if frozen.bias is None else frozen.bias + self.bias
        return linear(h, frozen.weight + self.weight, bias)


class NormChange(nn.Module):
    """y -> (1 + g) * y + d per channel, after a norm [B, N, C]: its scale w becomes w (1 + g), its shift b (1 + g) + d.

    g, d: [C], both start at zero.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.zeros(channels))
        self.shift = nn.Parameter(torch.zeros(channels))

    def forward(self, y: Tensor) -> Tensor:
        return (y * (1 + per_token(self.scale)) + per_token(self.shift)).to(y.dtype)


class FullBlock(BlockAdapter):
    """Both norms, at the sites that read them, and the four linear maps."""

    def __init__(self, channels: int, mlp_dim: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = NormChange(channels), NormChange(channels)
        self.qkv_change, self.proj_change = LinearChange(channels, 3 * channels), LinearChange(channels, channels)
        self.fc1_change, self.fc2_change = LinearChange(channels, mlp_dim), LinearChange(mlp_dim, channels)

    def qkv(self, layer: nn.Module, h: Tensor) -> Tensor:
        return cast(Tensor, self.qkv_change(layer, self.norm1(h)))

    def proj(self, layer: nn.Module, h: Tensor) -> Tensor:
        return cast(Tensor, self.proj_change(layer, h))

    def fc1(self, layer: nn.Module, h: Tensor) -> Tensor:
        return cast(Tensor, self.fc1_change(layer, self.norm2(h)))

    def fc2(self, layer: nn.Module, h: Tensor) -> Tensor:
        return cast(Tensor, self.fc2_change(layer, h))


class Full(Adapter):
    """Parameters: embed_dim * (patch_dim + N + 3) + depth * (embed_dim * (9 + 4 * embed_dim + 2 * mlp_dim) + mlp_dim).

    N counts patches and prefix tokens. A class token and its position are one vector here, as only their sum has an
    effect, so there are embed_dim numbers fewer than in the backbone. What a backbone may have beyond the plain ViT
    stays as it is: LayerScale (the linear map before it can take any scale), norms within attention and MLP and before
    the first block, and one after the pooling beside one before it. Weight decay pulls towards the backbone, not
    towards zero. It has no arguments.
    """

    foldable = True
    mixes = False

    def __init__(self, geometry: Geometry) -> None:
        channels = geometry.embed_dim
        super().__init__(FullBlock(channels, geometry.mlp_dim) for _ in range(geometry.depth))
        self.patch_weight = nn.Parameter(torch.zeros(channels, geometry.patch_dim))
        self.patch_bias = nn.Parameter(torch.zeros(channels))
        self.positions = nn.Parameter(torch.zeros(Layout.of(geometry).num_tokens, channels))
        self.norm_change = NormChange(channels)

    def patch_embed(self, layer: nn.Module, images: Tensor) -> Tensor:
        size = cast(Any, layer).patch_size
        patches = F.unfold(images, size, stride=size).mT  # [B, P, patch_dim]
        embedded = super().patch_embed(layer, images)
        return embedded + linear(patches, self.patch_weight, self.patch_bias).to(embedded.dtype)

    def pos_embed(self, layer: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        placed = layer(x)
        return placed + self.positions.to(placed.dtype)

    def norm(self, layer: nn.Module, x: Tensor) -> Tensor:
        return cast(Tensor, self.norm_change(layer(x)))
