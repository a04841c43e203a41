"""`fpet data`: fetches the named data sets, and says what they hold."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from fpet.commands import options
from fpet.commands.table import table
from fpet.commands.tell import tell
from fpet.data import SOURCES, load_source
from fpet.data.pinned import PINNED
from fpet.errors import DataError

_DESCRIPTION = """Fetches the named data sets where they are not in the cache yet, by the machine's package managers
(apt-get, npm), and prints their sizes and the beginning of their SHA-256. The last column says whether they are those
that our tables were made with: other versions of a package have other pictures; a hyphen stands where a source has
only one version. What cannot be had is named and left out; the exit status is then 2 if it was asked for by name."""
_NAMES = "; ".join(f"{name}: {source.summary}" for name, source in SOURCES.items())
_TABLES = "as in our tables"
_COLUMNS = ("name", "group", "classes", "train", "val", "test", "sha256", _TABLES)
_SHOWN = 12  # hexadecimal digits of a SHA-256 in the table
_UNAVAILABLE = 2


def add_command(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `data`."""
    parser = subparsers.add_parser("data", description=_DESCRIPTION)
    parser.set_defaults(run=run)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{_NAMES} (default: all)")
    options.add_cache(parser)
    parser.add_argument("--list", action="store_true", help="print what there is, fetch nothing, and stop")
    parser.add_argument("--json", action="store_true", help="print one JSON list, with the labels and whole SHA-256")


def run(arguments: argparse.Namespace) -> int:
    """Loads each data set, unless they are only listed, and prints the table.

    Raises:
        DataError: if there is no source of a name.
    """
    for name in arguments.names:
        if name not in SOURCES:
            raise DataError(f"no data '{name}': the sources are {', '.join(SOURCES)}")
    if arguments.list:
        known = [{"name": name, "group": SOURCES[name].group, "what": SOURCES[name].summary} for name in SOURCES]
        chosen = [row for row in known if not arguments.names or row["name"] in arguments.names]
        print(json.dumps(chosen) if arguments.json else table(chosen, ("name", "group", "what")))
        return 0
    rows, failed = [], False
    for name in dict.fromkeys(arguments.names or SOURCES):
        try:
            rows.append(_row(name, arguments.cache))
        except DataError as error:
            tell(f"skipped {name}: {error}")
            failed = True
    if arguments.json:
        print(json.dumps(rows))
    else:
        print(
            table(
                [row | {"sha256": str(row["sha256"])[:_SHOWN], _TABLES: row["as_in_our_tables"]} for row in rows],
                _COLUMNS,
            )
        )
    return _UNAVAILABLE if failed and arguments.names else 0


def _row(name: str, cache: Path | None) -> dict[str, object]:
    dataset, pinned = load_source(name, cache=cache), PINNED.get(name)
    same = None if pinned is None else dataset.sha256 == pinned.sha256
    if pinned and not same:
        tell(f"{name}: not the data that our tables were made with ({pinned.versions})")
    return {
        "name": name,
        "group": SOURCES[name].group,
        "classes": len(dataset.labels),
        "labels": dataset.labels,
        "train": len(dataset.train),
        "val": len(dataset.val),
        "test": len(dataset.test),
        "sha256": dataset.sha256,
        "as_in_our_tables": same,
    }
