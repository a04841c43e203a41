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


def test_what_is_loaded_once_is_walked_no_more_by_the_garbage_collector() -> None:
    done = subprocess.run([sys.executable, "-c", _COUNT], capture_output=True, text=True, check=True)
    before, after, enabled = done.stdout.split()
    assert int(after) < int(before) / 100
    assert enabled == "True"
