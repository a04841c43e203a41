"""Options that name an adapter and a token reduction with their arguments."""

from __future__ import annotations

import argparse

from fpet.adapters import ADAPTERS
from fpet.commands import options
from fpet.header import Method
from fpet.reducers import REDUCERS
from fpet.untrained import at_middle_block

DEFAULTS = Method("adaptformer"), Method("bdm")


def add_methods(parser: argparse.ArgumentParser, default: str = "") -> None:
    """Adds --adapter, --reducer and the arguments of both, which `methods` reads.

    default: what is taken before the usual default, such as "the task's, or ".
    """
    for option, registry, usual, example, note in (
        ("adapter", tuple(ADAPTERS), DEFAULTS[0].kind, "dim=8,scale=1", ""),
        ("reducer", tuple(REDUCERS), DEFAULTS[1].kind, "block=6", "; block, from 0: the one half-way, as in the paper"),
    ):
        parser.add_argument(f"--{option}", choices=registry, help=f"method (default: {default}{usual})")
        parser.add_argument(
            f"--{option}-arguments",
            type=options.keyword_arguments,
            metavar="NAME=VALUE,...",
            help=f"arguments of the {option}, such as {example}; see `fpet methods` (default: its own{note})",
        )


def methods(
    arguments: argparse.Namespace, depth: int, defaults: tuple[Method, Method] = DEFAULTS
) -> tuple[Method, Method]:
    """The adapter and the reduction asked for, the reduction at the middle one of `depth` blocks if none is named."""
    adapter = _method(arguments.adapter, arguments.adapter_arguments, defaults[0])
    reducer = _method(arguments.reducer, arguments.reducer_arguments, defaults[1])
    return adapter, at_middle_block(reducer, depth)


def _method(kind: str | None, given: dict[str, options.Value] | None, default: Method) -> Method:
    if kind is None and given is None:
        return default
    return Method(kind or default.kind, dict(given or {}))
