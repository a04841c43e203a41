"""Memory that is freed is kept: counted where it shows, in the pages that the system hands out."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pytest
from small import small_backbone

from fpet.backbone import save_backbone
from fpet.embedded import default_backbone

# On many machines large tensors get huge pages unasked, of which there would be few to count.
_STEPS = """
import ctypes
import resource
import sys
from pathlib import Path
import torch
from fpet.hardware.allocator import return_freed_memory
if sys.argv[1:] == ["settle"]:
    from service.process import settle
    settle()
elif len(sys.argv) > 1:
    from fpet.cli import main
    assert main(sys.argv[1:]) == 0
def resident():
    return int(Path("/proc/self/statm").read_text().split()[1])
PR_SET_THP_DISABLE = 41
assert ctypes.CDLL(None).prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) == 0
for step in range(12):
    if step == 2:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    x = torch.ones(2**26, dtype=torch.uint8)
    for _ in range(4):
        x = x + 1
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
del x
kept = resident()
return_freed_memory()
print(kept - resident())
"""
_PAGES = 10 * 5 * 2**26 // 4096  # of all the tensors that are counted
_PLAN = """
data = ["digits"]
seeds = [0]
method = [{ name = "LoRA", adapter = "lora", reducer = "none" }]
recipe = { epochs = 1, warmup_epochs = 0 }
"""
_COMMANDS = {
    "none": [],
    "train": ["train", "--data", "digits", "--name", "x", "--epochs", "1", "--warmup-epochs", "0", "--reducer", "none"],
    "sweep": ["sweep", "plan.toml", "--output", "table.csv"],
    "settle": ["settle"],
}


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="there is nothing to tell other C libraries")
@pytest.mark.parametrize("command", _COMMANDS)
def test_large_tensors_take_the_memory_of_earlier_ones_until_it_is_returned(command: str, tmp_path: Path) -> None:
    save_backbone(tmp_path / "small.safetensors", small_backbone())
    (tmp_path / "plan.toml").write_text(_PLAN)
    files = ["--backbone", "small.safetensors"]
    run = [sys.executable, "-c", _STEPS, *_COMMANDS[command], *(files if command in ("train", "sweep") else [])]
    printed = subprocess.run(run, check=True, capture_output=True, text=True, cwd=tmp_path).stdout
    faults, returned = map(int, printed.splitlines()[-2:])
    of_one = 2**26 // 4096
    if command == "none":
        assert faults >= _PAGES
        assert returned < of_one / 2  # it is not there any more
    else:
        assert faults < _PAGES / 5
        assert returned > of_one / 2


_IN_A_THREAD = """
import resource
import sys
import threading
import numpy as np
from fpet.hardware.allocator import keep_freed_memory
if sys.argv[1:] == ["kept"]:
    keep_freed_memory()
def work():
    held = [np.ones(2**17) for _ in range(60)]  # in MiB, of the 64 that glibc takes for a thread at once
    np.ones(2**20)
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
    for _ in range(10):
        np.ones(2**20)
    print(resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before)
thread = threading.Thread(target=work)
thread.start()
thread.join()
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="there is nothing to tell other C libraries")
def test_a_thread_keeps_what_is_freed_of_its_second_piece_of_memory() -> None:
    def faults(*arguments: str) -> int:
        run = [sys.executable, "-c", _IN_A_THREAD, *arguments]
        return int(subprocess.run(run, check=True, capture_output=True, text=True).stdout)

    assert faults("kept") == 0
    assert faults() > 100


_FOLD = """
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
import torch
from fpet.hardware.allocator import keep_freed_memory, return_freed_memory
from fpet.task import Task
from fpet.embedded import default_backbone, task_path
from service.engine import Engine
from service.folding import Folding
from service.metrics import Metrics
from service.settings import Settings
def resident():
    return int(Path("/proc/self/statm").read_text().split()[1])
metrics = Metrics([], [])
engine = Engine.start(default_backbone(), torch.device("cpu"), torch.bfloat16, metrics)
task = engine.load(Task.load(task_path("digits")), 1)
folding = Folding(Settings(), metrics, engine, ThreadPoolExecutor(1), lambda: [task], read=Path.read_bytes)
folding.close()  # so that no timings follow
return_freed_memory()
keep_freed_memory()
folding.pin(task)
assert folding.state(task)[1]
kept = resident()
return_freed_memory()
print(kept - resident())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="there is nothing to tell other C libraries")
def test_what_folding_takes_for_a_moment_is_returned() -> None:
    printed = subprocess.run([sys.executable, "-c", _FOLD], check=True, capture_output=True, text=True).stdout
    exact = default_backbone().stat().st_size // 4096
    assert int(printed) < exact / 2


_ARENAS = """if True:
    import ctypes
    import threading
    from fpet.hardware.allocator import keep_freed_memory
    keep_freed_memory()
    all_here = threading.Barrier(24)
    def hold():
        kept = bytearray(2**20)
        all_here.wait()
    threads = [threading.Thread(target=hold) for _ in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ctypes.CDLL(None).malloc_stats()
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has to be told")
def test_threads_share_few_arenas() -> None:
    """Each keeps what its threads had at the most."""
    told = subprocess.run([sys.executable, "-c", _ARENAS], check=True, capture_output=True, text=True).stderr
    assert 1 <= told.count("Arena ") <= 8


_A_LARGE_IMAGE = """
import asyncio
import ctypes
import io
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from PIL import Image
from fpet.preprocess import Preprocessing
from service.decode import Decoder
from service.fair_threads import FairThreads
from service.process import settle
def resident():
    return int(Path("/proc/self/statm").read_text().split()[1])
PR_SET_THP_DISABLE = 41
assert ctypes.CDLL(None).prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) == 0
encoded = io.BytesIO()
Image.new("RGB", (6000, 6000)).save(encoded, "PNG")
settle()
with ThreadPoolExecutor(1) as pool, ThreadPoolExecutor(1) as large:
    decoder = Decoder(("png",), 50_000_000, FairThreads(pool, 1), FairThreads(large, 1))
    before = resident()
    asyncio.run(decoder.decode([encoded.getvalue()], [Preprocessing((16, 16))]))
    print(resident() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="there is nothing to tell other C libraries")
def test_what_a_large_image_took_is_returned() -> None:
    run = [sys.executable, "-c", _A_LARGE_IMAGE]
    kept = int(subprocess.run(run, check=True, capture_output=True, text=True).stdout)
    assert kept * 4096 < 3 * 6000 * 6000 / 2
