"""What the processor is, and how torch computes on it where the defaults do not suit it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import torch

from fpet.hardware.cores import cores

_SIDE = 256  # of a product that is large enough for oneDNN to be asked for it


def name(system: Path = Path("/")) -> str:
    """The processor's name as the kernel has it, or "cpu" where that has none. system: as of `configure`."""
    for line in _cpuinfo(system).splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip() or "cpu"
    return "cpu"


def configure(device: torch.device | str, system: Path = Path("/")) -> None:
    """Sets for the whole process, if the device is a CPU, what torch leaves open there.

    Products of float32 matrices are oneDNN's on an AMD processor. torch has MKL compute them, which uses half of what
    such a processor with AVX-512 has, and asks oneDNN only where the precision "medium" allows it to round factors to
    bfloat16. It does so by instructions that multiply whole tiles; without them nothing is rounded, which is tried.

    A precision that was chosen before stays. So does torch's where there is a GPU, for whose products "medium" means
    TF32.

    Nor does torch compute in more threads than there are cores for this process: it knows of affinity, and not of the
    quota of a container, in which threads beyond it have all of them stopped for most of the time.

    system: the root of the file system, in which the kernel says whose processor it is, and of the quota.
    """
    if torch.device(device).type == "cpu" and cores(system) < torch.get_num_threads():
        torch.set_num_threads(cores(system))
    alone = torch.device(device).type == "cpu" and not torch.accelerator.is_available()
    # torch has MKL, and the processor is AMD's.
    if alone and torch.backends.mkl.is_available() and "AuthenticAMD" in _cpuinfo(system):
        with suppress(RuntimeError):  # it was chosen by torch's newer way, of which this one does not know
            _ask_onednn()


def _ask_onednn() -> None:
    if torch.get_float32_matmul_precision() == "highest":
        torch.set_float32_matmul_precision("medium")
        if not _rounds_nothing():
            torch.set_float32_matmul_precision("highest")


def _cpuinfo(system: Path) -> str:
    try:
        return (system / "proc" / "cpuinfo").read_text()
    except OSError:  # another system's; nothing is known
        return ""


def _rounds_nothing() -> bool:
    """Whether a matrix that is multiplied by one stays what it is."""
    matrix = torch.rand((_SIDE, _SIDE), generator=torch.Generator().manual_seed(0), dtype=torch.float32, device="cpu")
    return torch.equal(matrix @ torch.eye(_SIDE, dtype=torch.float32, device="cpu"), matrix)
