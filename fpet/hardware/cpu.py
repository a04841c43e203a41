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

    On an AMD processor oneDNN computes products of float32 matrices. By default torch has MKL compute them, which uses
    half of the throughput of such a processor with AVX-512; it asks oneDNN only with the precision "medium", which
    allows factors to be rounded to bfloat16. oneDNN rounds them only for instructions that multiply whole tiles; that
    nothing is rounded is tried on a product.

    A precision that was chosen before stays. So does torch's where there is a GPU, for whose products "medium" means
    TF32.

    torch gets no more threads than there are cores for this process. It knows the affinity, but not the quota of a
    container: with more threads than that allows, the kernel stops all of them for most of the time.

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
