"""Parameters and multiply-accumulates beside what the FPET paper prints, as Markdown.

python -m benchmarks.paper_numbers > docs/paper-numbers.md
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Iterator, Sequence

from benchmarks.markdown import table
from benchmarks.paper_rows import ADAPTFORMER, BACKBONES, BLOCKS, COSTS, NONE, PARAMETERS, VIT_B, Cost, Parameters
from fpet.adapters import build_adapter
from fpet.backbone import Backbone
from fpet.flops import macs, outline
from fpet.header import Method
from fpet.methods import VIT_BASE, methods
from fpet.reducers import build_reducer
from fpet.tokens import Layout
from fpet.vit import count_parameters

_HEAD = """# The numbers of the paper

What this code counts beside what FPET ([arXiv 2503.20282](https://arxiv.org/abs/2503.20282)) prints. This page is the
output of `python -m benchmarks.paper_numbers`; a test keeps it so. A count agrees if it rounds to the paper's digits.
"""
_PARAMETERS = """## Parameters

On ViT-B/16 at 224 pixels, the head not counted (paper: table 2, in millions). FPET rows have the key refinement of the
matching besides, 64 x 32 and 32 x 64. NOAH, SynQT, Pruned RepAdapter, Adapter-P (few-shot) and UniAdapter
(retrieval) are not part of this project.
"""
_COSTS = """## Multiply-accumulates

Of one image, in billions: what the paper calls FLOPs. Matching is at the middle block, index 6 of 12 or 12 of 24, whose
MLP sees the merged tokens already. A layer norm counts five operations an element. A folded adapter has become part of
the backbone's weights. The paper's 16.84 for SynQT is below the bare backbone, to which SynQT adds work: it is what
ViT-B costs without the two products of attention.
"""
_BLOCKS = """## Where tokens merge

AdaptFormer, dim 8, on ViT-B/16, merging at one block, counted from 0; the paper prints one number for all reductions.
Pooling takes no matrix product.
"""
_BACKBONES = """## Bare backbones

Matching without an adapter; the paper has no such table. The ideal speed-up is the ratio of GMACs: a measurement beyond
it has to be explained.
"""


def markdown() -> str:
    """The page."""
    return "\n".join(
        [
            *(_HEAD, _PARAMETERS, table(("method", "parameters", "paper (M)", "agrees", "reason"), _parameters())),
            *(_COSTS, table(("method", "full", "paper", "reduced", "paper", "agrees", "reason"), _costs())),
            *(_BLOCKS, table(("block", "`bdm`", "`average-pool`", "paper", "each agrees"), _blocks())),
            *(_BACKBONES, table(("backbone", "block", "GMACs", "saving", "ideal speed-up"), _backbones())),
        ]
    ).rstrip("\n")


def agrees(count: float, printed: str) -> bool:
    """Whether the count rounds to the printed number, in its unit."""
    digits = len(printed.partition(".")[2])
    return f"{count:.{digits}f}" == printed


def parameters(row: Parameters) -> int:
    """Mean over the row's adapters, with the matching's own if the row has it."""
    adapters = [count_parameters(build_adapter(adapter.kind, VIT_BASE, adapter.arguments)) for adapter in row.adapters]
    matching = build_reducer("bdm", VIT_BASE, Layout.of(VIT_BASE), {"block": 6})
    return round(sum(adapters) / len(adapters)) + (count_parameters(matching) if row.matching else 0)


def costs(row: Cost) -> tuple[float, float | None]:
    """GMACs without matching and, if the paper has a number for it, with matching at the middle block."""
    middle = _backbone(row.architecture).geometry.depth // 2
    full = _gmacs(row.architecture, row.adapter, NONE, row.folded)
    if row.reduced is None:
        return full, None
    return full, _gmacs(row.architecture, row.adapter, Method("bdm", {"block": middle}), row.folded)


def _parameters() -> Iterator[Sequence[str]]:
    for row in PARAMETERS:
        count = parameters(row)
        yield row.name, f"{count:,}", row.millions, _verdict(agrees(count / 1e6, row.millions)), row.reason
    printed = {adapter.kind for row in PARAMETERS for adapter in row.adapters}
    for method in methods():
        if method.role == "adapter" and method.kind not in printed and method.parameters is not None:
            yield f"`{method.kind}` by default", f"{method.parameters:,}", "", "", "not in the paper"


def _costs() -> Iterator[Sequence[str]]:
    for row in COSTS:
        full, reduced = costs(row)
        right = agrees(full, row.full) and (reduced is None or agrees(reduced, row.reduced or ""))
        counted = "" if reduced is None else f"{reduced:.2f}"
        yield row.name, f"{full:.2f}", row.full, counted, row.reduced or "", _verdict(right), row.reason


def _blocks() -> Iterator[Sequence[str]]:
    for block, printed in BLOCKS.items():
        reducers = [Method(kind, {"block": block}) for kind in ("bdm", "average-pool")]
        counts = [_gmacs(VIT_B, ADAPTFORMER, reducer) for reducer in reducers]
        verdicts = ", ".join(_verdict(agrees(count, printed)) for count in counts)
        yield str(block), *(f"{count:.3f}" for count in counts), printed, verdicts


def _backbones() -> Iterator[Sequence[str]]:
    for architecture, blocks in BACKBONES.items():
        full = _gmacs(architecture, NONE, NONE)
        yield f"`{architecture}`", "none", f"{full:.2f}", "", ""
        for block in blocks:
            reduced = _gmacs(architecture, NONE, Method("bdm", {"block": block}))
            yield "", str(block), f"{reduced:.2f}", f"{1 - reduced / full:.1%}", f"{full / reduced:.3f}"


@functools.cache
def _backbone(architecture: str) -> Backbone:
    return outline(architecture, {})


def _gmacs(architecture: str, adapter: Method, reducer: Method, folded: bool = False) -> float:
    return macs(_backbone(architecture), adapter, reducer, folded=folded) / 1e9


def _verdict(right: bool) -> str:
    return "yes" if right else "no"


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    print(markdown())
