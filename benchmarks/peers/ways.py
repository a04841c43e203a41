"""Who is timed: the servers, and the ways of asking them for a label."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache, partial

from benchmarks.formats import in_it
from benchmarks.load import post
from benchmarks.peers.prepare import Prepared
from benchmarks.servers import Server, fpet_serve, serving
from fpet.hardware.cores import cores

FPET = "fpet serve"
FPET_PROCESSES = "fpet serve, processes"
THREADS = "FastAPI, threads"
PROCESSES = "FastAPI, processes"
LITSERVE = "LitServe"
BENTOML = "BentoML"
# What the peers need beyond what this project itself does.
PACKAGES = {LITSERVE: "litserve", BENTOML: "bentoml"}


@dataclass(frozen=True)
class Way:
    """server: whom to ask; request: from a port, a task and an image; label: of an answer's body; reduced: whether the
    tokens are."""

    server: str
    request: Callable[[int, str, bytes], bytes]
    label: Callable[[bytes], str]
    reduced: bool = False


def starts(prepared: Prepared, python: str) -> dict[str, Callable[[], AbstractContextManager[Server]]]:
    """How to start each server; python: the interpreter that has the peers installed."""

    def peer(module: str, *arguments: int, ready: str = "/health") -> Callable[[], AbstractContextManager[Server]]:
        command = [python, "-m", f"benchmarks.peers.{module}", str(prepared.full), "{port}", *map(str, arguments)]
        return partial(serving, command, ready, {"OMP_NUM_THREADS": "1"})

    count = cores()
    fpet = partial(fpet_serve, prepared.tasks.folder, *in_it(), "--backbone", str(prepared.tasks.backbone))
    return {
        FPET: fpet,
        FPET_PROCESSES: partial(fpet, "--processes", str(count)),
        THREADS: peer("plain", 1, count),
        PROCESSES: peer("plain", count, 1),
        LITSERVE: peer("lit", count),
        BENTOML: peer("bento", ready="/readyz"),
    }


def _fpet(tokens: str, server: str = FPET) -> Way:
    def request(port: int, task: str, image: bytes) -> bytes:
        return post(port, f"/v1/tasks/{task}/classify?top_k=1&tokens={tokens}", image)

    return Way(server, request, lambda body: str(json.loads(body)["predictions"][0][0]["label"]), tokens == "reduced")


def _plain(server: str) -> Way:
    return Way(server, lambda port, task, image: post(port, f"/{task}", image), _label)


def _litserve() -> Way:
    def request(port: int, task: str, image: bytes) -> bytes:
        return post(port, "/predict", _question(task, image), "application/json")

    return Way(LITSERVE, request, _label)


def _bentoml() -> Way:
    def request(port: int, task: str, image: bytes) -> bytes:
        body = b'{"questions": [%b]}' % _question(task, image)
        return post(port, "/classify", body, "application/json")

    return Way(BENTOML, request, lambda body: str(json.loads(body)[0]["label"]))


@cache  # what asking costs is taken from who is asked
def _question(task: str, image: bytes) -> bytes:
    return json.dumps({"model": task, "image": base64.b64encode(image).decode()}).encode()


def _label(body: bytes) -> str:
    return str(json.loads(body)["label"])


WAYS: dict[str, Way] = {
    f"{FPET}, reduced": _fpet("reduced"),
    f"{FPET}, full": _fpet("full"),
    f"{FPET_PROCESSES}, reduced": _fpet("reduced", FPET_PROCESSES),
    THREADS: _plain(THREADS),
    PROCESSES: _plain(PROCESSES),
    LITSERVE: _litserve(),
    BENTOML: _bentoml(),
}
