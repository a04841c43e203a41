"""A task before its training: what its header says of backbone, methods and labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fpet.errors import TaskError
from fpet.header import BackboneRef, HeadSpec, Method, TaskHeader
from fpet.linear import FULL_PRECISION
from fpet.preprocess import Preprocessing
from fpet.reducers import REDUCERS
from fpet.registry import keyword_parameters, refuse_untrainable

if TYPE_CHECKING:
    from fpet.backbone import Backbone


def new_header(
    name: str,
    labels: tuple[str, ...],
    backbone: Backbone,
    *,
    adapter: Method,
    reducer: Method,
    head_bits: int = FULL_PRECISION,
) -> TaskHeader:
    """The header of a task with this adapter and reducer, whose images are prepared as the backbone's were.

    head_bits: bits a weight of the head, which has a bias at 32 alone.

    Raises:
        TaskError: if the name, the labels or the methods cannot be a task's.
        UnsupportedError: as `refuse_untrainable`.
    """
    preprocessing, head = preprocessing_of(backbone), HeadSpec(bits=head_bits, bias=head_bits == FULL_PRECISION)
    reference = BackboneRef(backbone.architecture, backbone.arguments, backbone.fingerprint)
    try:
        header = TaskHeader(name, reference, adapter, reducer, labels, preprocessing, head)
        for method in (adapter, reducer):
            refuse_untrainable(method.kind, method.arguments)
        header.to_json()  # what has no place in a file would be found only after the training
    except ValueError as error:
        raise TaskError(str(error)) from error
    return header


def preprocessing_of(backbone: Backbone) -> Preprocessing:
    """How images are prepared for this backbone: resized to its size, and normalised as its own were."""
    vit: Any = backbone.vit
    table = vit.pretrained_cfg  # timm's of the architecture, unless the file said otherwise
    return Preprocessing(tuple(vit.patch_embed.img_size), tuple(table["mean"]), tuple(table["std"]))


def at_middle_block(reducer: Method, depth: int) -> Method:
    """The reducer at the middle one of `depth` blocks, unless it names its block or has none to name."""
    if reducer.kind in REDUCERS and "block" in keyword_parameters(REDUCERS[reducer.kind]):
        return Method(reducer.kind, {"block": depth // 2, **reducer.arguments})
    return reducer
