"""Multiply-accumulates of one image by part, counted by running the forward on tensors that have no values.

The convention is that of the FPET paper, whose "FLOPs" are multiply-accumulates: one for each product in a matrix
product or convolution, and five for each element that a layer norm puts out. Nothing else counts.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from fpet.adapters import build_adapter
from fpet.adapters.base import Adapter, why_not_folded
from fpet.adapters.none import LinearProbe
from fpet.backbone import Backbone
from fpet.backbone_files.described import geometry
from fpet.backbone_files.timm_models import vit_on_meta
from fpet.errors import UnsupportedError
from fpet.header import Method
from fpet.linear import LowBitLinear
from fpet.reducers import build_reducer
from fpet.tokens import Layout
from fpet.vit import AdaptedViT

Counts = dict[str, dict[Any, int]]

_CLASSES = 100
_LAYER_NORM = torch.ops.aten.native_layer_norm
_LAYER_NORM_MACS = 5  # an element
# The products of `fpet.linear.add_linear`; torch's counter knows other products, but none in place.
_PRODUCTS_IN_PLACE = (torch.ops.aten.addmm_, torch.ops.aten.baddbmm_)
_FLOPS_PER_MAC = 2  # torch counts the product and the sum
# Modules of a model without an adapter. What is counted outside of them is the two products of attention.
_PATCH_EMBEDDING = r"vit\.patch_embed"
_ATTENTION_LINEAR = r"vit\.blocks\.\d+\.attn\.(qkv|proj)"
_MLP = r"vit\.blocks\.\d+\.mlp\.fc[12]"
_REDUCER = r"reducer\.blocks\.\d+"
_HEAD = r"head"


@dataclass(frozen=True)
class Macs:
    """Multiply-accumulates of one image.

    attention_linear: queries, keys, values and output projection; attention_products: queries with keys, and weights
    with values; norms: all layer norms of the backbone; reducer: choosing tokens and merging them; adapter: all that
    the model does more than without it, such as carrying prompts through the other parts.
    """

    patch_embedding: int
    attention_linear: int
    attention_products: int
    mlp: int
    norms: int
    head: int
    reducer: int
    adapter: int

    @property
    def total(self) -> int:
        """Sum of the parts."""
        return sum(dataclasses.astuple(self))


@dataclass(frozen=True)
class Flops:
    """A model without token reduction and with it; tokens_in, tokens_out: before the first and after the last block."""

    full: Macs
    reduced: Macs
    tokens_in: int
    tokens_out: int

    @property
    def saving(self) -> float:
        """Share of the multiply-accumulates that the reduction saves, below 1; negative if it costs more."""
        return 1 - self.reduced.total / self.full.total

    @property
    def speed_up(self) -> float:
        """The ratio of multiply-accumulates: what a machine would gain that did nothing else."""
        return self.full.total / self.reduced.total


def outline(architecture: str, arguments: Mapping[str, object]) -> Backbone:
    """A backbone whose weights have shapes only, by timm name and arguments; it has no fingerprint.

    Raises:
        BackboneError, UnsupportedError: as `create_backbone`.
    """
    vit = vit_on_meta(architecture, arguments)
    vit.requires_grad_(False).eval()
    return Backbone(vit, architecture, dict(arguments), "", geometry(vit))


def flops(
    backbone: Backbone, adapter: Method, reducer: Method, *, classes: int = _CLASSES, folded: bool = False
) -> Flops:
    """Counts a model by part with its token reduction and without; weights do not matter.

    folded: the adapter is folded into the backbone, as at inference.

    Raises:
        UnsupportedError: for methods that are unknown or do not fit the backbone, an adapter that does not fold, or a
            reduction that lets each image decide how many tokens it keeps.
    """
    adapted = _model(backbone, _adapter(backbone, adapter, folded), reducer, classes)
    bare = _model(backbone, LinearProbe(backbone.geometry), reducer, classes)
    return Flops(
        full=_parts(bare.unreduced(), adapted.unreduced()),
        reduced=_parts(bare, adapted),
        tokens_in=adapted.tokens_in,
        tokens_out=adapted.tokens_out,
    )


def macs(backbone: Backbone, adapter: Method, reducer: Method, *, folded: bool = False) -> int:
    """The total alone, of a model with 100 classes; otherwise as `flops`."""
    with torch.random.fork_rng(devices=[]):  # random weights that are counted and no more: no draw of the caller's
        model = _model(backbone, _adapter(backbone, adapter, folded), reducer, _CLASSES)
    return _total(_count(model))


def _adapter(backbone: Backbone, method: Method, folded: bool) -> Adapter:
    adapter = build_adapter(method.kind, backbone.geometry, method.arguments)
    if not folded:
        return adapter
    if not adapter.foldable:
        raise UnsupportedError(f"{method.kind} does not fold: {why_not_folded(adapter)}")
    return LinearProbe(backbone.geometry)


def _model(backbone: Backbone, adapter: Adapter, reducer: Method, classes: int) -> AdaptedViT:
    geometry = backbone.geometry
    layout = Layout.of(geometry, adapter.num_prompts)
    reduction = build_reducer(reducer.kind, geometry, layout, reducer.arguments)
    head = LowBitLinear(geometry.embed_dim, classes, bias=True)
    model = AdaptedViT(backbone, adapter, reduction, head).eval()
    # The counter watches the gradients of all that requires them, even where none are computed.
    return model.requires_grad_(False)


def _count(model: AdaptedViT) -> Counts:
    """FLOPs as torch counts them: by module, then by operator."""
    vit: Any = model.vit
    formulas = {_LAYER_NORM: _layer_norm_flops} | dict.fromkeys(_PRODUCTS_IN_PLACE, _product_flops)
    counter = FlopCounterMode(display=False, custom_mapping=formulas)
    # This kernel of attention consists of matrix products, which torch counts; fused ones it counts on some devices.
    attention = sdpa_kernel(SDPBackend.MATH)
    # A model in half precision is counted as one in float32, which the image is in.
    tensors = dict([*model.named_parameters(), *model.named_buffers()])
    dtypes = {name: torch.float32 if value.is_floating_point() else value.dtype for name, value in tensors.items()}
    try:
        with FakeTensorMode(), counter, attention, torch.no_grad():
            shapes = {name: torch.empty(value.shape, dtype=dtypes[name]) for name, value in tensors.items()}
            functional_call(model, shapes, torch.empty(1, 3, *vit.patch_embed.img_size, dtype=torch.float32))
    except DataDependentOutputException as error:
        raise UnsupportedError(
            f"{type(model.reducer).__name__} lets each image decide how many tokens it keeps: no number holds for all"
        ) from error
    return counter.get_flop_counts()


def _product_flops(_: torch.Size, x: torch.Size, weight: torch.Size, **__: object) -> int:
    return _FLOPS_PER_MAC * x.numel() * weight[-1]


def _layer_norm_flops(*_: object, out_shape: tuple[torch.Size, ...], **__: object) -> int:
    return _FLOPS_PER_MAC * _LAYER_NORM_MACS * out_shape[0].numel()


def _total(counts: Counts) -> int:
    return sum(counts["Global"].values()) // _FLOPS_PER_MAC


def _parts(bare: AdaptedViT, adapted: AdaptedViT) -> Macs:
    counts = _count(bare)

    def of(modules: str) -> int:
        pattern = re.compile(rf"{type(bare).__name__}\.{modules}")
        chosen = [operators for name, operators in counts.items() if pattern.fullmatch(name)]
        without_norms = (flops for ops in chosen for operator, flops in ops.items() if operator is not _LAYER_NORM)
        return sum(without_norms) // _FLOPS_PER_MAC

    parts = {
        "patch_embedding": of(_PATCH_EMBEDDING),
        "attention_linear": of(_ATTENTION_LINEAR),
        "mlp": of(_MLP),
        "norms": counts["Global"].get(_LAYER_NORM, 0) // _FLOPS_PER_MAC,
        "head": of(_HEAD),
        "reducer": of(_REDUCER),
    }
    total = _total(counts)
    products = total - sum(parts.values())
    return Macs(**parts, attention_products=products, adapter=_total(_count(adapted)) - total)
