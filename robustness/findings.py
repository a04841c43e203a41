"""What a run found: each kind once, with its first input, and how often it came."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Finding:
    """kind: what went wrong, the same for all that have one cause; detail: of this case; data: what to send again."""

    kind: str
    detail: str
    data: bytes


@dataclass
class Findings:
    """Collects findings; the first input of each kind is written into `folder` at once."""

    folder: Path
    counts: dict[str, int] = field(default_factory=dict)
    shown: dict[str, str] = field(default_factory=dict)

    def add(self, finding: Finding) -> None:
        """Counts it, and keeps its input if it is the first of its kind."""
        self.counts[finding.kind] = self.counts.get(finding.kind, 0) + 1
        if finding.kind in self.shown:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{hashlib.sha256(finding.kind.encode() + finding.data).hexdigest()[:16]}.bin"
        path.write_bytes(finding.data)
        self.shown[finding.kind] = f"{finding.detail} [{path}]"

    def lines(self) -> list[str]:
        """For people: one line a kind."""
        return [f"{self.counts[kind]} x {kind}: {shown}" for kind, shown in self.shown.items()]

    def report(self) -> int:
        """Prints them; the exit status of the run."""
        print("\n".join(self.lines()) or "no findings", flush=True)
        return 1 if self.shown else 0
