"""A small plan of a sweep, and the command that does it."""

from __future__ import annotations

from pathlib import Path

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
