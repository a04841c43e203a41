"""How a process is set that serves."""

from __future__ import annotations

import subprocess
import sys

_COUNT = """
import gc
import service.app
from service.process import settle
before = len(gc.get_objects())
settle()
print(before, len(gc.get_objects()), gc.isenabled())
"""

_METRICS = """
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from service.process import settle
registry = CollectorRegistry()
asked, took = Counter("asked", "", registry=registry), Histogram("took", "", registry=registry)
settle()
asked.inc()
print(generate_latest(registry).decode())
"""


def test_what_is_loaded_once_is_walked_no_more_by_the_garbage_collector() -> None:
    done = subprocess.run([sys.executable, "-c", _COUNT], capture_output=True, text=True, check=True)
    before, after, enabled = done.stdout.split()
    assert int(after) < int(before) / 100
    assert enabled == "True"


def test_metrics_come_without_the_time_at_which_each_began() -> None:
    done = subprocess.run([sys.executable, "-c", _METRICS], capture_output=True, text=True, check=True)
    assert "asked_total 1.0" in done.stdout
    assert "took_count 0.0" in done.stdout
    assert "_created" not in done.stdout
