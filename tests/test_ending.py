"""A thread that never ends, as one that waits for a device, does not keep the service from ending."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
import weakref

import numpy as np
from serving import SECONDS, Files

from service.worker_threads import Threads

_SERVICE = """
import asyncio, os, signal, sys, threading
from pathlib import Path
from service.app import create_app
from service.http.server import Server
from service.settings import Settings

settings = Settings(
    backbone=Path(sys.argv[1]), tasks=Path(sys.argv[2]), device="cpu", dtype="float32", port=0, max_batch=4,
    threads=1, calibration_repeats=0, shutdown_delay=0, drain_seconds=0.5,
)
app = create_app(settings)

async def hang():
    while not hasattr(app, "runtime"):
        await asyncio.sleep(0)
    await app.runtime.warm.wait()
    hanging = asyncio.ensure_future(app.runtime.administer(threading.Event().wait))
    os.kill(os.getpid(), signal.SIGTERM)
    await hanging

async def serve():
    await asyncio.gather(Server(app, settings).serve(), hang(), return_exceptions=True)

asyncio.run(serve())
"""


def test_those_are_named_that_do_not_end() -> None:
    released, begun = threading.Event(), threading.Semaphore(0)
    pool = Threads(2, "name", begun.release)
    try:
        hanging, waiting = pool.submit(released.wait), pool.submit(released.wait)
        undone = pool.submit(released.wait)
        assert begun.acquire()
        assert begun.acquire()
        assert pool.end(time.monotonic() + 0.1) == ["name_0", "name_1"]
        assert undone.cancelled()
    finally:
        released.set()
    assert hanging.result()
    assert waiting.result()
    assert pool.end(time.monotonic() + SECONDS) == []


def test_what_is_cancelled_keeps_nothing_until_a_thread_comes_to_it() -> None:
    released, begun = threading.Event(), threading.Semaphore(0)
    pool = Threads(1, "name", begun.release)
    try:
        pool.submit(released.wait)
        assert begun.acquire()
        image = np.zeros(9)
        kept = weakref.ref(image)
        waiting = pool.submit(np.sum, image)
        del image
        assert kept() is not None
        assert waiting.cancel()
        assert kept() is None
    finally:
        released.set()
    assert pool.submit(divmod, 7, 2).result() == (3, 1)
    assert pool.end(time.monotonic() + SECONDS) == []


def test_the_service_ends_without_them(small_files: Files) -> None:
    command = [sys.executable, "-c", _SERVICE, str(small_files.backbone), str(small_files.tasks)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 1, done.stderr
    assert done.stderr.splitlines()[-1] == "the service ends without threads that do not end: loader_0"
