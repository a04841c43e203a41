"""The real service under load while everything around it fails.

python -m robustness.soak --minutes 20
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from benchmarks.markdown import table
from robustness.clients import Client
from robustness.ledger import Ledger
from robustness.operator import Operator
from robustness.process import MIB, Usage
from robustness.service import Service
from robustness.supervisor import Supervisor
from robustness.versions import subjects

_CLIENTS = 4
_TASKS = (("steady", "digits"), ("changing", "fashion-mnist"), ("passing", "digits"))
_KILLS = 8  # at most, in the first part of the soak
_KILLING = 0.5  # of the time; what the last process then holds is looked at after half of the rest, and at the end
_MOST_GROWTH = 96 * MIB
_MOST_DESCRIPTORS = 10
_DISK = "8m"


def main() -> int:
    """Runs the soak and prints what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=20.0, help="how long (default: 20)")
    parser.add_argument("--seed", type=int, default=0, help="draws other requests and faults (default: 0)")
    parser.add_argument("--processes", type=int, default=1, help="of the service (default: 1)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, small_disk(Path(folder) / "tasks") as full:
        if not full:
            print("no disk can be mounted here: a full one is left out")
        options = {"dtype": "float32", "calibration-repeats": 1, "processes": arguments.processes}
        service = Service(Path(folder) / "tasks", Path(folder) / "log", options)
        ledger, supervisor = soak(service, 60 * arguments.minutes, arguments.seed, full=full)
        print(f"seed {arguments.seed}, {arguments.minutes:g} minutes, {_CLIENTS} clients")
        print(f"processes of the service: {arguments.processes}\n")
        print(table(("", ""), [(what, f"{count:,}") for what, count in sorted(ledger.counts.items())]))
        rows = [(str(i), str(life.ready), str(life.end)) for i, life in enumerate(supervisor.lives, start=1)]
        print(table(("process", "when ready", "at its end"), rows))
        print("\n".join(ledger.failures) or "no failures", flush=True)
    return 1 if ledger.failures else 0


def soak(service: Service, seconds: float, seed: int, *, full: bool) -> tuple[Ledger, Supervisor]:
    """Runs clients and an operator for so long. full: whether the disk of the task folder is small enough to fill."""
    tasks = subjects(_TASKS)
    steady, *changing = tasks
    for subject in tasks:
        (service.tasks / f"{subject.name}.safetensors").write_bytes(subject.versions[0].data)
    ledger, supervisor = Ledger(), Supervisor(service)
    supervisor.start()
    client = Client(supervisor, tasks, steady.name, ledger)
    operator = Operator(supervisor, changing, ledger, full=full)
    stop = threading.Event()
    threads = [threading.Thread(target=client.run, args=(Random(f"{seed} {i}"), stop)) for i in range(_CLIENTS)]
    every = seconds * _KILLING / _KILLS
    threads.append(threading.Thread(target=operator.run, args=(Random(seed), stop, every)))
    for thread in threads:
        thread.start()
    time.sleep(seconds * _KILLING)
    supervisor.spare()
    time.sleep(seconds * (1 - _KILLING) / 2)
    warm = service.usage()
    time.sleep(seconds * (1 - _KILLING) / 2)
    stop.set()
    for thread in threads:
        thread.join()
    _finish(supervisor, warm, ledger)
    return ledger, supervisor


def _finish(supervisor: Supervisor, warm: Usage, ledger: Ledger) -> None:
    """What the last process holds, how it stops, and what it leaves behind."""
    service = supervisor.service
    end = service.usage()
    if (status := supervisor.stop()) != -signal.SIGTERM:  # raised again once all is done, as processes should end
        ledger.fail(f"exit status {status}")
    if end.resident - warm.resident > _MOST_GROWTH or end.descriptors - warm.descriptors > _MOST_DESCRIPTORS:
        ledger.fail(f"the service grows: {warm}, then {end}")
    if count := service.tracebacks():
        ledger.fail(f"{count} tracebacks in the log: {service.log.read_text()[-2000:]}")
    left = [path.name for path in service.tasks.iterdir() if path.name.startswith(".")]
    if len(left) > len(supervisor.lives) - 1:  # who is killed while writing leaves one file, which nobody reads
        ledger.fail(f"left in the task folder: {left}")


@contextmanager
def small_disk(folder: Path) -> Iterator[bool]:
    """A folder on a disk of its own that is soon full; False, and an ordinary folder, where none can be mounted."""
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={_DISK}", "tmpfs", str(folder)], capture_output=True, check=False
    )
    try:
        yield mounted.returncode == 0
    finally:
        if mounted.returncode == 0:
            subprocess.run(["umount", str(folder)], check=True)


if __name__ == "__main__":
    sys.exit(main())
