"""What the registries hold, described from the code itself."""

from __future__ import annotations

import inspect
import itertools
import sys
from dataclasses import dataclass
from typing import Any

from fpet.adapters import ADAPTERS, build_adapter
from fpet.adapters.base import Adapter
from fpet.errors import UnsupportedError
from fpet.header import Method
from fpet.reducers import REDUCERS, build_reducer
from fpet.reducers.base import Reducer
from fpet.registry import keyword_parameters
from fpet.tokens import Geometry, Layout
from fpet.untrained import half_way
from fpet.vit import count_parameters, refuse_misfit

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

    role: "adapter" or "reducer"; source: the first line of its file's docstring, or nothing; arguments: with their
    defaults, None where there is none; parameters: trained on ViT-B/16 at 224 pixels by default (a reducer at block 6),
    the head not counted; foldable: whether nothing is left of it at inference; tokens: left of ViT-B's 197 plus
    prompts, at most; refuses: the kinds of the other role that it cannot go together with.
    """

    role: str
    kind: str
    source: str
    arguments: dict[str, Any]
    parameters: int
    foldable: bool
    tokens: int
    refuses: tuple[str, ...]


def methods() -> list[MethodInfo]:
    """All adapters, then all reducers, in the order of their registries."""
    adapters = {kind: build_adapter(kind, VIT_BASE, {}) for kind in ADAPTERS}
    placed = [half_way(Method(kind), VIT_BASE.depth) for kind in REDUCERS]
    reducers = {one.kind: build_reducer(one.kind, VIT_BASE, Layout.of(VIT_BASE), one.arguments) for one in placed}
    refused = [
        (kind, other)
        for (kind, adapter), (other, reducer) in itertools.product(adapters.items(), reducers.items())
        if not _fit(adapter, reducer)
    ]
    return [
        _describe(kind, adapter, Layout.of(VIT_BASE, adapter.num_prompts), refused)
        for kind, adapter in adapters.items()
    ] + [_describe(kind, reducer, reducer.layout_out, refused) for kind, reducer in reducers.items()]


def _describe(kind: str, module: Adapter | Reducer, layout: Layout, refused: list[tuple[str, str]]) -> MethodInfo:
    """layout: of the tokens that are left; refused: pairs of an adapter and a reducer."""
    is_adapter = isinstance(module, Adapter)
    return MethodInfo(
        role="adapter" if is_adapter else "reducer",
        kind=kind,
        source=_source(type(module)),
        arguments=_arguments(type(module)),
        parameters=count_parameters(module),
        foldable=isinstance(module, Adapter) and module.foldable,
        tokens=layout.num_tokens,
        refuses=tuple(pair[is_adapter] for pair in refused if pair[not is_adapter] == kind),
    )


def _fit(adapter: Adapter, reducer: Reducer) -> bool:
    try:
        refuse_misfit(adapter, reducer, VIT_BASE)
    except UnsupportedError:
        return False
    return True


def _source(method: type) -> str:
    return inspect.cleandoc(sys.modules[method.__module__].__doc__ or "").partition("\n")[0]


def _arguments(method: type) -> dict[str, Any]:
    return {
        name: None if parameter.default is inspect.Parameter.empty else parameter.default
        for name, parameter in keyword_parameters(method).items()
    }
