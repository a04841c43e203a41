"""`fpet methods`: which adapters and reducers there are."""

from __future__ import annotations

import argparse
import dataclasses
import json

from fpet.commands.table import table
from fpet.methods import methods

_DESCRIPTION = """Lists the adapters and token reductions: parameters trained and tokens left, at most, on ViT-B/16 by
default (a reduction at the middle block), whether the adapter folds into the backbone, and the arguments with their
defaults. Any adapter composes with any reduction that it does not refuse."""
_COLUMNS = ("role", "kind", "parameters", "tokens", "foldable", "refuses", "arguments")


def add_command(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `methods`."""
    parser = subparsers.add_parser("methods", description=_DESCRIPTION)
    parser.set_defaults(run=run)
    parser.add_argument("--json", action="store_true", help="print one JSON list")


def run(arguments: argparse.Namespace) -> int:
    """Prints the table."""
    rows = [dataclasses.asdict(method) for method in methods()]
    if arguments.json:
        print(json.dumps(rows))
        return 0
    for row in rows:
        pairs = (name if default is None else f"{name}={default}" for name, default in row["arguments"].items())
        row["arguments"], row["refuses"] = ",".join(pairs) or None, ",".join(row["refuses"]) or None
    print(table(rows, _COLUMNS))
    return 0
