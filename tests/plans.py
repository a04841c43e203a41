"""A small plan of a sweep, the command that does it, here or in a process, and what its table says."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path

_TIMES = ("training_seconds", "epoch_seconds")
PLAN = """
data = ["digits", "nowhere"]
seeds = [3]
recipe = { epochs = 2, warmup_epochs = 0, lr = 0.01, batch_size = 100 }

[[method]]
name = "Linear"
adapter = "none"
reducer = "none"

[[method]]
name = "LoRA + FPET"
adapter = "lora"
adapter_arguments = { dim = 4 }
reducer_arguments = { block = 0 }
head_bits = 8
search_scale = [0.5, 2]
recipe = { epochs = 1 }

[[method]]
name = "Too fast"
recipe = { lr = 1e30 }
"""


def command(plan: Path, output: Path, backbone: Path, *more: str) -> list[str]:
    """The command line of a sweep."""
    return ["sweep", str(plan), "--output", str(output), "--backbone", str(backbone), *more]


def started(arguments: list[str]) -> subprocess.Popen[str]:
    """A process of its own with such a command."""
    return subprocess.Popen(
        [sys.executable, "-m", "fpet.cli", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def left(folder: Path) -> list[str]:
    """The names in it, but of what somebody who was killed had begun to write: that is removed an hour later."""
    return sorted(path.name for path in folder.iterdir() if not path.name.endswith(".fpet-unfinished"))


def without_times(path: Path) -> list[dict[str, str]]:
    """The rows of a table, by run, without what differs each time."""
    with path.open() as file:
        rows = [{name: text for name, text in row.items() if name not in _TIMES} for row in csv.DictReader(file)]
    return sorted(rows, key=lambda row: row["run"])
