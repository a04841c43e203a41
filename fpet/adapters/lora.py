"""LoRA on queries and values (Hu et al., ICLR 2022), as tuned in FPET: q += s * U_q D_q h, v += s * U_v D_v h.

The same update of other layers, each with a D and U of its own, covers LoRA as other libraries train it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from torch import Tensor, nn

from fpet.adapters.base import Adapter, BlockAdapter
from fpet.errors import UnsupportedError
from fpet.linear import LowBitLinear, add_linear
from fpet.tokens import Geometry

SLICES = ("q", "k", "v")  # a third of the fused qkv layer each
LAYERS = ("qkv", "proj", "fc1", "fc2")  # qkv: one D for queries, keys and values together


class LowRank(nn.Module):
    """y + s * U drop(D h), [B, N, out], of h [B, N, in]; D: [dim, in], U: [out, dim], no bias."""

    def __init__(self, in_features: int, out_features: int, dim: int, bits: int, dropout: float) -> None:
        super().__init__()
        self.down = LowBitLinear(in_features, dim, bits)
        self.dropout = nn.Dropout(dropout)
        self.up = LowBitLinear(dim, out_features, bits)
        self.up.start_at_zero()

    def forward(self, y: Tensor, h: Tensor, scale: float) -> Tensor:
        """Writes into y, which may be a slice of a layer's channels, and returns it."""
        return add_linear(y, self.dropout(self.down(h)), self.up.effective_weight(), scale)


class LoRABlock(BlockAdapter):
    """Low-rank updates of the fused qkv layer, or of its query, key and value rows; the rest stays the backbone's."""

    def __init__(self, updates: Mapping[str, LowRank], scale: float) -> None:
        super().__init__()
        for name in SLICES:
            if name in updates:
                self.add_module(name, updates[name])
        self.layers = nn.ModuleDict({name: updates[name] for name in LAYERS if name in updates})
        self.scale = scale

    def qkv(self, layer: nn.Module, h: Tensor) -> Tensor:
        y = self._updated("qkv", layer(h), h)
        width = y.shape[-1] // len(SLICES)
        for place, name in enumerate(SLICES):
            # A slice that has no update is left alone: putting all three together would copy them.
            self._updated(name, y.narrow(-1, place * width, width), h)
        return y

    def _updated(self, target: str, y: Tensor, h: Tensor) -> Tensor:
        update = self.layers[target] if target in self.layers else getattr(self, target, None)
        return cast(Tensor, update(y, h, self.scale)) if isinstance(update, LowRank) else y


class LoRAEveryLayerBlock(LoRABlock):
    """Low-rank updates of the other linear layers too. Apart, so that folding copies them only where they change."""

    def proj(self, layer: nn.Module, h: Tensor) -> Tensor:
        return self._updated("proj", layer(h), h)

    def fc1(self, layer: nn.Module, h: Tensor) -> Tensor:
        return self._updated("fc1", layer(h), h)

    def fc2(self, layer: nn.Module, h: Tensor) -> Tensor:
        return self._updated("fc2", layer(h), h)


class LoRA(Adapter):
    """Parameters: depth * sum over targets of dim * (in + out). At bits < 32 it is Bi-LoRA and its relatives.

    dim: hidden width; scale: s; bits: 1, 2, 4, 8 or 32 a weight; dropout: on the hidden vector, in training; targets:
    what is updated, of q, k, v, qkv, proj, fc1 and fc2, joined by '+'.
    """

    foldable = True
    scaled = ("up.weight",)

    def __init__(
        self,
        geometry: Geometry,
        *,
        dim: int = 8,
        scale: float = 1.0,
        bits: int = 32,
        dropout: float = 0.1,
        targets: str = "q+v",
    ) -> None:
        features = _features(geometry)
        self.targets = parse_targets(targets)
        everywhere = not set(self.targets) <= {*SLICES, "qkv"}
        block = LoRAEveryLayerBlock if everywhere else LoRABlock
        super().__init__(
            block({target: LowRank(*features[target], dim, bits, dropout) for target in self.targets}, scale)
            for _ in range(geometry.depth)
        )


def parse_targets(text: str) -> tuple[str, ...]:
    """`q+v` -> ("q", "v"), in the order of the tensors.

    Raises:
        UnsupportedError: for an unknown target, one that comes twice, or qkv beside a part of it.
    """
    targets = text.split("+")
    known = (*SLICES, *LAYERS)
    for target in targets:
        if target not in known:
            raise UnsupportedError(f"targets = {text!r}: {target!r} is none of {', '.join(known)}")
    if len(set(targets)) < len(targets) or ("qkv" in targets and not set(SLICES).isdisjoint(targets)):
        raise UnsupportedError(f"targets = {text!r} updates the same weights twice")
    return tuple(target for target in known if target in targets)


def tensor_prefix(block: int, target: str) -> str:
    """Where in a task file the update of a target lies, as `down.weight` and `up.weight` below it."""
    return f"adapter.blocks.{block}.{target if target in SLICES else f'layers.{target}'}"


def _features(geometry: Geometry) -> dict[str, tuple[int, int]]:
    """What each target takes and gives, in channels."""
    channels, attention = geometry.embed_dim, geometry.num_heads * geometry.head_dim
    return {
        **dict.fromkeys(SLICES, (channels, attention)),
        "qkv": (channels, 3 * attention),
        "proj": (attention, channels),
        "fc1": (channels, geometry.mlp_dim),
        "fc2": (geometry.mlp_dim, channels),
    }
