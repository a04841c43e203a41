"""A signal ends a process that starts, also as the first of a container."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
from serving import Files

_START = """if True:
    import os, signal, sys
    from fpet.signals import ended_by_signals
    number = int(sys.argv[1])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # which it is not under nohup
    with ended_by_signals():
        print("starting", os.getpid(), flush=True)
        os.kill(os.getpid(), number)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    print("started")
"""
_FIRST = ["unshare", "--user", "--map-root-user", "--pid", "--fork"]


def start(number: int, *before: str) -> subprocess.CompletedProcess[str]:
    command = [*before, sys.executable, "-c", _START, str(number)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def has_namespaces() -> bool:
    try:
        return subprocess.run([*_FIRST, "true"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_as_by_default(number: signal.Signals) -> None:
    ended = start(number)
    assert (ended.returncode, ended.stdout.split()[0]) == (-number, "starting")
    assert "started" not in ended.stdout


@pytest.mark.skipif(not has_namespaces(), reason="no namespace of processes can be made here")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_first_of_a_container(number: signal.Signals) -> None:
    ended = start(number, *_FIRST)
    assert (ended.returncode, ended.stdout) == (128 + number, "starting 1\n")


@pytest.mark.skipif(not has_namespaces(), reason="no namespace of processes can be made here")
def test_any_command_that_is_the_first_of_a_container_ends_by_a_signal() -> None:
    script = "import os, signal, sys\nfrom fpet.cli import main\nclass Told:\n"
    script += "    def write(self, text): os.kill(1, signal.SIGTERM)\n    flush = lambda self: None\n"
    script += "sys.stdout = Told()\nmain(['methods'])\nprint('alive', file=sys.stderr)"
    command = [*_FIRST, sys.executable, "-c", script]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (128 + signal.SIGTERM, "")


_SERVE = """
import os, signal, socket, sys, threading, time, urllib.request
from fpet.cli import main

with socket.create_server(("127.0.0.1", 0)) as free:
    port = free.getsockname()[1]

def stop():
    while True:
        try:
            if urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz").status == 200:
                return os.kill(1, signal.SIGTERM)
        except OSError:
            time.sleep(0.1)

threading.Thread(target=stop, daemon=True).start()
sys.exit(main([*sys.argv[1:], "--port", str(port)]))
"""


@pytest.mark.skipif(not has_namespaces(), reason="no namespace of processes can be made here")
@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_service_that_is_the_first_of_a_container_stops_in_order(processes: str, small_files: Files) -> None:
    options = ["--backbone", str(small_files.backbone), "--tasks", str(small_files.tasks), "--calibration-repeats", "0"]
    options += ["--dtype", "float32", "--max-batch", "2", "--shutdown-delay", "0", "--processes", processes]
    command = [*_FIRST, sys.executable, "-c", _SERVE, "serve", *options]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert ended.returncode == 0, ended.stderr


def test_what_is_ignored_stays_so() -> None:
    assert start(signal.SIGINT).stdout.split()[-1] == "started"
