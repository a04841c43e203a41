"""What the registries hold, described from the code itself."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from fpet.adapters import ADAPTERS, build_adapter
from fpet.reducers import REDUCERS, build_reducer
from fpet.tokens import Geometry, Layout

VIT_BASE = Geometry(
    depth=12,
    embed_dim=768,
    mlp_dim=3072,
    num_heads=12,
    head_dim=64,
    grid=(14, 14),
    num_prefix_tokens=1,
    patch_dim=3 * 16 * 16,
)


@dataclass(frozen=True)
class MethodInfo:
    """An adapter or reducer.

    role: "adapter" or "reducer"; source: the first line of its file; arguments: with their defaults, None where there
    is none; parameters: trained on ViT-B/16 at 224 pixels by default (a reducer at block 6), the head not counted;
    foldable: whether nothing is left of it at inference; tokens: left of ViT-B's 197 plus prompts.
    """

    role: str
    kind: str
    source: str
    arguments: dict[str, Any]
    parameters: int
    foldable: bool
    tokens: int


def methods() -> list[MethodInfo]:
    """All adapters, then all reducers, in the order of their registries."""
    return [_adapter(kind) for kind in ADAPTERS] + [_reducer(kind) for kind in REDUCERS]


def _adapter(kind: str) -> MethodInfo:
    method = ADAPTERS[kind]
    adapter = build_adapter(kind, VIT_BASE, {})
    layout = Layout.of(VIT_BASE, adapter.num_prompts)
    return MethodInfo(
        "adapter", kind, _source(method), _arguments(method), _count(adapter), method.foldable, layout.num_tokens
    )


def _reducer(kind: str) -> MethodInfo:
    method = REDUCERS[kind]
    arguments = _arguments(method)
    middle: Mapping[str, Any] = {"block": VIT_BASE.depth // 2} if "block" in arguments else {}
    reducer = build_reducer(kind, VIT_BASE, Layout.of(VIT_BASE), middle)
    tokens = reducer.layout_out.num_tokens
    return MethodInfo("reducer", kind, _source(method), arguments, _count(reducer), False, tokens)


def _count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def _source(method: type) -> str:
    return inspect.cleandoc(sys.modules[method.__module__].__doc__ or "").splitlines()[0]


def _arguments(method: type) -> dict[str, Any]:
    return {
        name: None if parameter.default is inspect.Parameter.empty else parameter.default
        for name, parameter in inspect.signature(method).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }
