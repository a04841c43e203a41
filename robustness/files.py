"""Mutated real files for everything that reads files: pictures, requests, tasks and backbones.

python -m robustness.files --cases 1000000
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.markdown import table
from robustness.findings import Finding, Findings
from robustness.process import MIB
from robustness.targets import TARGETS, Target
from robustness.worker import Worker

_MOST_GROWTH = 64 * MIB


@dataclass
class Tally:
    """What came of a target's cases; growth: bytes of memory from when it was warm to its end."""

    name: str
    cases: int
    taken: int = 0
    refused: int = 0
    slowest: float = 0.0
    growth: int = 0
    seconds: float = 0.0

    def row(self) -> tuple[str, ...]:
        """For the table."""
        numbers = (f"{self.cases:,}", f"{self.taken:,}", f"{self.refused:,}", f"{1000 * self.slowest:.0f}")
        return (self.name, *numbers, f"{self.growth / MIB:+.1f}", f"{self.cases / self.seconds:,.0f}")


def main() -> int:
    """Runs all targets and prints what came of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=1_000_000, help="of all targets together (default: 1000000)")
    parser.add_argument("--seed", type=int, default=0, help="draws other cases (default: 0)")
    parser.add_argument("--target", choices=TARGETS, help="only this one, with all cases")
    parser.add_argument("--findings", type=Path, default=Path("runs/findings"), help="folder for what went wrong")
    arguments = parser.parse_args()
    findings = Findings(arguments.findings)
    shares = {name: share for name, (share, _) in TARGETS.items() if arguments.target in (None, name)}
    tallies = []
    for name, share in shares.items():
        cases = max(1, arguments.cases * share // sum(shares.values()))
        tallies.append(attack(name, TARGETS[name][1], cases, arguments.seed, findings))
        print(" | ".join(tallies[-1].row()), flush=True)
    header = ("target", "cases", "taken", "refused", "slowest, ms", "memory, MiB", "cases a second")
    print(f"\nseed {arguments.seed}\n\n{table(header, [tally.row() for tally in tallies])}\n")
    return findings.report()


def attack(name: str, make: Callable[[], Target], cases: int, seed: int, findings: Findings) -> Tally:
    """Runs the cases of a target in one process after the other, each until it ends or a case ends it."""
    tally, first, started = Tally(name, cases), 0, time.monotonic()
    target = make()
    while first < cases:
        worker = Worker(make, seed, first, cases)
        for kind, detail, index in worker.watch():
            findings.add(Finding(f"{name}: {kind}", f"seed {seed} case {index}: {detail}", target.case(seed, index)))
        first = worker.next
        tally.taken += worker.taken
        tally.refused += worker.refused
        tally.slowest = max(tally.slowest, worker.slowest)
        tally.growth = max(tally.growth, worker.growth)
    if tally.growth > _MOST_GROWTH:
        findings.add(Finding(f"{name}: memory grows", f"seed {seed}: {tally.growth / MIB:.0f} MiB", b""))
    tally.seconds = time.monotonic() - started
    return tally


if __name__ == "__main__":
    sys.exit(main())
