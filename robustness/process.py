"""What a process holds, as Linux tells it."""

from __future__ import annotations

import resource
from dataclasses import dataclass
from pathlib import Path

from benchmarks.servers import held

MIB = 2**20


@dataclass(frozen=True)
class Usage:
    """resident: bytes in memory; descriptors: open files and connections."""

    resident: int
    descriptors: int

    @classmethod
    def of(cls, pid: int) -> Usage:
        """Of a process; raises OSError if it runs no more."""
        folder = Path(f"/proc/{pid}")
        resident = held(folder / "status")["VmRSS"]
        if not resident:
            raise ProcessLookupError(f"{folder}: the process has ended")
        return cls(resident, len(list((folder / "fd").iterdir())))

    def __str__(self) -> str:
        return f"{self.resident / MIB:.0f} MiB, {self.descriptors} descriptors"


def limit_memory(more: int) -> None:
    """This process can get so many bytes more and no others: what asks for them meets MemoryError."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (held(Path("/proc/self/status"))["VmData"] + more, hard))
