"""The real service on small weights, over real HTTP."""

from __future__ import annotations

import asyncio
import dataclasses
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import httpx
import torch
from small import small_backbone, small_header
from target import SERVED

from fpet.backbone import Backbone, save_backbone
from fpet.header import Method, TaskHeader
from fpet.task import new_model, save_task
from service.app import create_app
from service.http.server import Server
from service.processes.peers import ALONE, Peers
from service.runtime import Runtime
from service.settings import Settings

Result = TypeVar("Result")

REPADAPTER = Method("repadapter", {"dim": 4})
KEY = "correct horse battery"
ADMIN = {"authorization": f"Bearer {KEY}"}
START_SECONDS = 300  # as long as a slow machine with more to do takes until the real backbone is timed
SECONDS = 120  # likewise, for anything else


@dataclass(frozen=True)
class Files:
    """A backbone, and a folder with the tasks `digits` (reduced by BDM) and `plain` (not reduced, three labels)."""

    backbone: Path
    tasks: Path


def write_files(folder: Path) -> Files:
    """Makes them, with random weights that tell images apart."""
    backbone = small_backbone()
    files = Files(folder / "backbone.safetensors", folder / "tasks")
    save_backbone(files.backbone, backbone)
    digits = small_header(backbone)
    plain = dataclasses.replace(
        small_header(backbone, reducer=Method("none")), name="plain", labels=("cat", "dog", "émeu")
    )
    for header in (digits, plain):
        write_task(files.tasks / f"{header.name}.safetensors", header, backbone)
    return files


def copy_files(files: Files, folder: Path) -> Files:
    """The same, with the tasks in a new folder, where they may change."""
    shutil.copytree(files.tasks, folder)
    return Files(files.backbone, folder)


def write_task(path: Path, header: TaskHeader, backbone: Backbone, seed: int = 0) -> None:
    """A task file with random weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = new_model(header, backbone)
        for parameter in model.trainable().parameters():
            torch.nn.init.normal_(parameter, std=0.5)
    save_task(path, header, model)


def write_foldable(folder: Path, name: str, seed: int = 0, adapter: Method = REPADAPTER) -> Path:
    """Writes a task of that name, by default of a family that folds."""
    backbone, path = small_backbone(), folder / f"{name}.safetensors"
    write_task(path, dataclasses.replace(small_header(backbone, adapter), name=name), backbone, seed)
    return path


def small_settings(files: Files, **changes: object) -> Settings:
    """Settings for tests: small, exact, and quick to start and stop: one thread a forward needs no measurement."""
    options = {
        "backbone": files.backbone,
        "tasks": files.tasks,
        "device": SERVED,
        "dtype": "float32",
        "log_level": "warning",
        "threads": 1,
        "max_batch": 4,
        "calibration_repeats": 0,
        "shutdown_delay": 0,
    }
    return Settings(**{**options, **changes})  # type: ignore[arg-type]


@dataclass(frozen=True)
class Serving:
    """A service in another thread, with a client of it."""

    client: httpx.Client
    server: Server
    runtime: Runtime
    loop: asyncio.AbstractEventLoop
    address: tuple[str, int]

    def on_loop(self, function: Callable[[], Result]) -> Result:
        """Calls a function where the service's state lives."""

        async def call() -> Result:
            return function()

        return asyncio.run_coroutine_threadsafe(call(), self.loop).result()

    def until(self, condition: Callable[[], bool]) -> None:
        """Asks again and again; each question is a request, which gives the service time to get there."""
        give_up = time.monotonic() + SECONDS
        while not condition():
            assert time.monotonic() < give_up

    def classify(self, image: bytes, task: str = "digits", **query: object) -> httpx.Response:
        """POSTs one image."""
        return self.client.post(
            f"/v1/tasks/{task}/classify", params=query, content=image, headers={"content-type": "image/png"}
        )

    def metric(self, name: str, **labels: str) -> float:
        """A value as /metrics tells it."""
        pairs = ",".join(f'{key}="{value}"' for key, value in sorted(labels.items()))
        sample = f"fpet_{name}{{{pairs}}} " if pairs else f"fpet_{name} "
        lines = self.client.get("/metrics").text.splitlines()
        return float(next(line.removeprefix(sample) for line in lines if line.startswith(sample)))


@contextmanager
def serving(settings: Settings, peers: Peers = ALONE) -> Iterator[Serving]:
    """Starts the service, waits until it is ready, and stops it as a signal would; peers: its other processes."""
    app = create_app(settings, peers)
    server = _Announcing(app, settings)
    # Only sockets made explicitly for TCP get asyncio's TCP_NODELAY, without which every answer takes 40 ms.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listening:
        listening.bind(("127.0.0.1", 0))
        address = listening.getsockname()
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        try:
            give_up = time.monotonic() + START_SECONDS
            while not server.announced.wait(timeout=0.1):
                assert thread.is_alive()
                assert time.monotonic() < give_up
            assert server.loop is not None
            with httpx.Client(base_url=f"http://{address[0]}:{address[1]}", timeout=60) as client:
                yield Serving(client, server, app.runtime, server.loop, address)
        finally:
            server.should_exit = True
            thread.join()


class _Announcing(Server):
    """Says when it is warm, so that nobody has to ask again and again."""

    announced: threading.Event
    loop: asyncio.AbstractEventLoop | None = None

    def __init__(self, app: object, settings: Settings) -> None:
        super().__init__(app, settings)  # type: ignore[arg-type]
        self.announced = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.loop = asyncio.get_running_loop()
        runtime = self._app.runtime
        while runtime.status == "starting":  # a start that fails is no event
            with suppress(TimeoutError):
                async with asyncio.timeout(0.1):
                    await runtime.warm.wait()
        if runtime.status == "ready":
            self.announced.set()
