"""The timings of a comparison, as CSV and as Markdown."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.markdown import table
from benchmarks.peers.ways import FPET
from fpet.errors import TaskError
from fpet.files import write_atomically

_MIB = 2**20
_PACKAGES = ("torch", "timm", "fastapi", "uvicorn", "uvloop", "httptools", "litserve", "bentoml")
_SCRIPT = """
import importlib.metadata, json, sys
found = {each.metadata["Name"]: each.version for each in importlib.metadata.distributions()}
print(json.dumps({name: found[name] for name in sys.argv[1:] if name in found}))
"""
_HEAD = ("", "throughput", "from", "to", "p50", "p99", "MiB resident")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One timing. way: who was asked and how; cores: as many workers as each had; versions: of the peers' packages."""

    model: str
    tasks: int
    way: str
    images_per_second: float
    p50_seconds: float
    p99_seconds: float
    resident_bytes: int
    concurrency: int
    cores: int
    dtype: str
    versions: str
    date: str


def versions(python: str) -> dict[str, str]:
    """The versions of the packages that matter and that an interpreter has, by name."""
    output = subprocess.run([python, "-c", _SCRIPT, *_PACKAGES], check=True, capture_output=True).stdout
    return dict(json.loads(output))


def write_csv(path: Path, rows: Sequence[Row]) -> None:
    """One line a timing.

    Raises:
        TaskError: if the file cannot be written.
    """
    text = io.StringIO()
    writer = csv.DictWriter(text, [field.name for field in dataclasses.fields(Row)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(dataclasses.asdict(row) for row in rows)
    write_atomically(path, text.getvalue().encode(), TaskError)


def tables(rows: Sequence[Row]) -> str:
    """A table for each number of tasks; all but memory is relative to the peer with the best throughput."""
    first = rows[0]
    lines = [
        f"{first.model}, {first.concurrency} requests in flight, {first.cores} cores, {first.dtype}, {first.date}; "
        f"{first.versions}\n"
    ]
    for tasks in dict.fromkeys(row.tasks for row in rows):
        ways: dict[str, list[Row]] = {}
        for row in rows:
            if row.tasks == tasks:
                ways.setdefault(row.way, []).append(row)
        lines += [f"Tasks: {tasks}\n", table(_HEAD, _lines(ways))]
    return "\n".join(lines)


def _lines(ways: Mapping[str, Sequence[Row]]) -> Iterator[Sequence[str]]:
    peers = [way for way in ways if not way.startswith(FPET)]
    best = ways[max(peers, key=lambda way: median(row.images_per_second for row in ways[way]))]
    for way, rows in ways.items():
        rates = [row.images_per_second / other.images_per_second for row, other in zip(rows, best, strict=True)]
        p50 = median(row.p50_seconds / other.p50_seconds for row, other in zip(rows, best, strict=True))
        p99 = median(row.p99_seconds / other.p99_seconds for row, other in zip(rows, best, strict=True))
        resident = median(row.resident_bytes for row in rows) / _MIB
        spread = f"{min(rates):.3f}", f"{max(rates):.3f}"
        yield way, f"{median(rates):.3f}", *spread, f"{p50:.3f}", f"{p99:.3f}", f"{resident:.0f}"
