"""Whether the weights of a foreign method take a batch axis: tried on two images with weights of their own.

Of our own methods the tests have tried all pairs.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from fpet.comparison import beyond_rounding, noise, normal
from fpet.errors import UnsupportedError
from fpet.inference.skeleton import Skeleton
from fpet.inference.task_weights import method_parameters
from fpet.reducers.base import BlockReducer
from fpet.tokens import Tokens
from fpet.vit import AdaptedViT
from fpet.words import reason


def refuse_unmixable(model: AdaptedViT) -> None:
    """Raises UnsupportedError, naming adapter or reduction, if its output for an image depends on the weights of
    others.

    All is computed in float32, in which rounding hides nothing: for that a backbone in half precision is copied.
    """
    parts = [("adapter", model.adapter, _embeddings), ("reduction", model.reducer, _reductions)]
    foreign = [part for part in parts if not type(part[1]).__module__.startswith("fpet.")]
    if not foreign:
        return
    exact = _in_float32(model)
    parameters = method_parameters(exact)
    skeleton = Skeleton(exact, parameters)
    own = [parameter.detach() for parameter in parameters]
    # Far from `own`, and nowhere zero, as `own` is in tensors that start at zero.
    other = [4 * tensor + 0.02 * normal(*tensor.shape).to(tensor) for tensor in own]
    with torch.inference_mode():
        for role, method, answers in foreign:
            alone = [answers(skeleton.filled(weights), [i]) for i, weights in enumerate((own, other))]
            try:
                stacked = [torch.stack(pair) for pair in zip(own, other, strict=True)]
                together = answers(skeleton.filled(stacked), [0, 1])
            except Exception as error:  # whatever a foreign method raises
                raise _unmixable(method, role, reason(error)) from error
            for found, *expected in zip(together, *alone, strict=True):
                wrong = beyond_rounding(found, torch.cat(expected), torch.float32)
                if wrong is not None:
                    raise _unmixable(method, role, f"answers differ by {wrong:.2g}")


def _in_float32(model: AdaptedViT) -> AdaptedViT:
    backbone = model.backbone
    if backbone.dtype != torch.float32:
        backbone = dataclasses.replace(backbone, vit=copy.deepcopy(backbone.vit).float())
    adapter, reducer = copy.deepcopy(model.adapter).float(), copy.deepcopy(model.reducer).float()
    return AdaptedViT(backbone, adapter, reducer, nn.Identity()).eval()


def _embeddings(model: AdaptedViT, rows: Sequence[int]) -> list[Tensor]:
    """Pooled embeddings of these of two noise images; with all tokens, since which of them merge may depend on
    rounding."""
    return [model.unreduced().features(noise(model.vit, 2)[rows])]


def _reductions(model: AdaptedViT, rows: Sequence[int]) -> list[Tensor]:
    """What each block's reduction makes of noise: tokens and sizes, or how many tokens if that varies."""
    geometry, layout = model.backbone.geometry, model.layout_in
    device = model.backbone.device
    found: list[Tensor] = []
    for block in model.reducer.blocks:
        tokens = normal(2, layout.num_tokens, geometry.embed_dim)[rows].to(device)
        keys = normal(2, geometry.num_heads, layout.num_tokens, geometry.head_dim)[rows].to(device)
        reduced = block(Tokens(tokens, None), keys, keys)
        if model.reducer.tokens_vary:
            found.append(reduced.lengths())
        else:
            found += [part for part in reduced if part is not None]
        layout = cast(BlockReducer, block).layout_out
    return found


def _unmixable(method: nn.Module, role: str, why: str) -> UnsupportedError:
    return UnsupportedError(
        f"the weights of {type(method).__name__} do not take a batch axis, a set an image, as those of `fpet.linear` "
        f"do ({why}); `mixes = False` on the {role} serves it unmixed"
    )
