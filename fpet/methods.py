"""What the registries hold, described from the code itself."""

from __future__ import annotations

import inspect
import itertools
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from fpet.adapters import ADAPTERS, build_adapter
from fpet.adapters.base import Adapter
from fpet.errors import UnsupportedError
from fpet.header import Method
from fpet.reducers import REDUCERS, build_reducer
from fpet.reducers.base import Reducer
from fpet.registry import keyword_parameters, missing_arguments
from fpet.tokens import Geometry, Layout
from fpet.untrained import at_middle_block
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
    prompts, at most; refuses: the kinds of the other role that it cannot go together with. Of a method with an argument
    that has no default these four are None or empty: by default there is no such method.
    """

    role: str
    kind: str
    source: str
    arguments: dict[str, Any]
    parameters: int | None
    foldable: bool | None
    tokens: int | None
    refuses: tuple[str, ...]


def methods() -> list[MethodInfo]:
    """All adapters, then all reducers, in the order of their registries."""
    with torch.device("meta"):  # shapes will do
        adapters, reducers = _made()
    refuses: dict[tuple[str, str], list[str]] = defaultdict(list)  # by role and kind
    for (adapter, made), (reducer, other) in itertools.product(adapters.items(), reducers.items()):
        if not _fit(made, other):
            refuses["adapter", adapter].append(reducer)
            refuses["reducer", reducer].append(adapter)
    return [
        *(
            _describe("adapter", kind, method, adapters.get(kind), refuses["adapter", kind])
            for kind, method in ADAPTERS.items()
        ),
        *(
            _describe("reducer", kind, method, reducers.get(kind), refuses["reducer", kind])
            for kind, method in REDUCERS.items()
        ),
    ]


def _made() -> tuple[dict[str, Adapter], dict[str, Reducer]]:
    """Those that there are by default, by kind."""
    adapters = {
        kind: build_adapter(kind, VIT_BASE, {})
        for kind, method in ADAPTERS.items()
        if not missing_arguments(method, ())
    }
    placed = {kind: at_middle_block(Method(kind), VIT_BASE.depth).arguments for kind in REDUCERS}
    layout = Layout.of(VIT_BASE)
    reducers = {
        kind: build_reducer(kind, VIT_BASE, layout, placed[kind])
        for kind, method in REDUCERS.items()
        if not missing_arguments(method, placed[kind])
    }
    return adapters, reducers


def _describe(role: str, kind: str, method: type, made: Adapter | Reducer | None, refuses: Sequence[str]) -> MethodInfo:
    """made: the method by default, if there is one."""
    return MethodInfo(
        role=role,
        kind=kind,
        source=_source(method),
        arguments=_arguments(method),
        parameters=None if made is None else count_parameters(made),
        foldable=None if made is None else isinstance(made, Adapter) and made.foldable,
        tokens=None if made is None else _layout(made).num_tokens,
        refuses=tuple(refuses),
    )


def _layout(made: Adapter | Reducer) -> Layout:
    """The layout of the tokens that are left."""
    return Layout.of(VIT_BASE, made.num_prompts) if isinstance(made, Adapter) else made.layout_out


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
