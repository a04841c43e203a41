"""What a process holds, as Linux tells it."""

from __future__ import annotations

import resource
from dataclasses import dataclass
from pathlib import Path

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
        return cls(_status(folder, "VmRSS"), len(list((folder / "fd").iterdir())))

    def __str__(self) -> str:
        return f"{self.resident / MIB:.0f} MiB, {self.descriptors} descriptors"


def limit_memory(more: int) -> None:
    """This process can get so many bytes more and no others: what asks for them meets MemoryError."""
    limit = _status(Path("/proc/self"), "VmData") + more
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def _status(folder: Path, name: str) -> int:
    lines = (folder / "status").read_text().splitlines()
    kib = [line.split()[1] for line in lines if line.startswith(f"{name}:")]
    if not kib:
        raise ProcessLookupError(f"{folder}: the process has ended")
    return 1024 * int(kib[0])
