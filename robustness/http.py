"""Hostile requests for the real service: made from its OpenAPI description, and valid ones broken byte by byte.

python -m robustness.http --cases 100000
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.markdown import table
from robustness.described import send_described
from robustness.findings import Finding, Findings
from robustness.process import MIB, Usage
from robustness.service import AUTHORIZATION, Service, running
from robustness.small import NAMES, write_backbone, write_tasks
from robustness.wire import Outcomes, send_hostile

_WARM = 0.2  # of the cases are sent before memory is first looked at
_DESCRIBED = 0.4  # of the cases are made from the description, which takes longer
_MOST_GROWTH = 128 * MIB
_MOST_DESCRIPTORS = 10


def main() -> int:
    """Starts the service, attacks it and prints what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=100_000, help="requests (default: 100000)")
    parser.add_argument("--seed", type=int, default=0, help="draws other requests (default: 0)")
    parser.add_argument("--findings", type=Path, default=Path("runs/findings"), help="folder for what went wrong")
    arguments = parser.parse_args()
    findings = Findings(arguments.findings)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_tasks(folder / "tasks")
        options = {"backbone": write_backbone(folder), "calibration-repeats": 1}
        with running(Service(folder / "tasks", folder / "log", options)) as service:
            attack(service, arguments.cases, arguments.seed, findings)
    return findings.report()


def attack(service: Service, cases: int, seed: int, findings: Findings) -> None:
    """Sends the requests to a service that runs, in two parts, so that its memory is seen warm and at the end."""
    started, warm = time.monotonic(), round(cases * _WARM)
    outcomes = [*_send(service, range(warm), seed, findings)]
    before = _settled(service)
    outcomes += _send(service, range(warm, cases), seed, findings)
    after = _settled(service)
    _check(service, before, after, findings)
    seconds = time.monotonic() - started
    print(f"seed {seed}, {seconds:.0f} s, warm: {before}, at the end: {after}\n")
    described, wire = (_sum(outcomes[part::2]) for part in range(2))
    statuses = sorted(described.statuses | wire.statuses)
    rows = [
        (str(status) if status else "none", f"{described.statuses[status]:,}", f"{wire.statuses[status]:,}")
        for status in statuses
    ]
    rows.append(("all", f"{described.count_of_all:,}", f"{wire.count_of_all:,}"))
    rows.append(("slowest, s", f"{described.slowest:.2f}", f"{wire.slowest:.2f}"))
    print(table(("answer", "from the description", "broken on the wire"), rows))


def _send(service: Service, cases: range, seed: int, findings: Findings) -> tuple[Outcomes, Outcomes]:
    """The cases, some of each kind."""
    described = round(len(cases) * _DESCRIBED)
    url = f"http://127.0.0.1:{service.port}"
    first = send_described(url, described, seed + cases.start, findings, lambda: restore(service))
    second = asyncio.run(send_hostile(service.port, cases[described:], seed, findings))
    restore(service)
    return first, second


def restore(service: Service) -> None:
    """Puts the tasks back that were deleted or taken out of service."""
    if service.request("GET", "/v2/models/digits/versions/1/ready")[0] == 200:
        return
    write_tasks(service.tasks)
    for task in NAMES:
        service.request("POST", f"/v1/tasks/{task}/load", headers=AUTHORIZATION)


def _settled(service: Service) -> Usage:
    """Once the connections of the clients have ended."""
    time.sleep(2)
    return service.usage()


def _check(service: Service, before: Usage, after: Usage, findings: Findings) -> None:
    if not service.alive:
        findings.add(Finding("the service has ended", service.log.read_text()[-300:], b""))
    if count := service.tracebacks():
        findings.add(Finding("tracebacks in the log", str(count), service.log.read_bytes()))
    if after.resident - before.resident > _MOST_GROWTH:
        findings.add(Finding("memory grows", f"{before}, then {after}", b""))
    if after.descriptors - before.descriptors > _MOST_DESCRIPTORS:
        findings.add(Finding("descriptors grow", f"{before}, then {after}", b""))


def _sum(parts: list[Outcomes]) -> Outcomes:
    statuses = sum((part.statuses for part in parts), start=type(parts[0].statuses)())
    return Outcomes(statuses, max(part.slowest for part in parts))


if __name__ == "__main__":
    sys.exit(main())
