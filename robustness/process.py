"""What a process holds, as Linux tells it."""

from __future__ import annotations

import resource
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.servers import held

MIB = 2**20


@dataclass(frozen=True)
class Usage:
    """Of several together; resident: bytes in memory; descriptors: open files and connections."""

    resident: int
    descriptors: int

    @classmethod
    def of(cls, pids: Sequence[int]) -> Usage:
        """Of processes; raises OSError if one runs no more."""
        folders = [Path(f"/proc/{pid}") for pid in pids]
        resident = [held(folder / "status")["VmRSS"] for folder in folders]
        if not all(resident):
            raise ProcessLookupError(f"{folders[resident.index(0)]}: the process has ended")
        return cls(sum(resident), sum(len(list((folder / "fd").iterdir())) for folder in folders))

    def __str__(self) -> str:
        return f"{self.resident / MIB:.0f} MiB, {self.descriptors} descriptors"


def limit_memory(more: int) -> None:
    """This process can get so many bytes more and no others: what asks for them meets MemoryError."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (held(Path("/proc/self/status"))["VmData"] + more, hard))
