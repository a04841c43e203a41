"""The harnesses of robustness/ in short, on the real thing and on what is known to be bad; and what they once found."""

from __future__ import annotations

import asyncio
import io
import json
import re
import socket
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import torch
from bad_target import bad_target
from serving import Serving

from fpet.backbone_files.checkpoints import read_checkpoint
from fpet.errors import BackboneError, TaskError
from fpet.quantize import codebook
from fpet.task import Task
from robustness import samples
from robustness.described import send_described
from robustness.files import attack
from robustness.findings import Findings
from robustness.service import Service
from robustness.soak import soak
from robustness.targets import TARGETS
from robustness.versions import subjects
from robustness.wire import send_hostile

pytestmark = pytest.mark.usefixtures("one_thread")

FILE = Path("small.safetensors")


@pytest.fixture
def findings(tmp_path: Path) -> Findings:
    return Findings(tmp_path / "findings")


@pytest.mark.parametrize("name", TARGETS)
def test_what_reads_files_takes_or_refuses_mutated_ones(name: str, findings: Findings) -> None:
    tally = attack(name, TARGETS[name][1], 60, seed=7, findings=findings)
    assert findings.lines() == []
    assert tally.taken + tally.refused == tally.cases
    assert tally.taken
    assert tally.refused


def test_crashes_foreign_errors_and_slow_cases_are_found_and_can_be_repeated(findings: Findings) -> None:
    tally = attack("bad", bad_target, 12, seed=3, findings=findings)
    assert sorted(re.sub(r"bad: (\w+).*", r"\1", kind) for kind in findings.counts) == ["KeyError", "crash", "slow"]
    assert tally.taken
    assert tally.refused
    target = bad_target()
    cases = [target.case(3, index) for index in range(12)]
    assert all(path.read_bytes() in cases for path in findings.folder.iterdir())


class BadService(BaseHTTPRequestHandler):
    """Answers everything with a server error that is not due."""

    protocol_version = "HTTP/1.1"

    def answer(self) -> None:
        self.rfile.read(int(self.headers.get("content-length") or 0))
        body = self.server.description if self.path == "/openapi.json" else b"oops"  # type: ignore[attr-defined]
        self.send_response(200 if self.path == "/openapi.json" else 500)
        self.send_header("content-length", str(len(body)))
        self.send_header("connection", "close")
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_PUT = do_DELETE = answer  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


@pytest.fixture
def bad_service() -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), BadService)
    operation = {"responses": {"200": {"description": "fine"}}}
    description = {"openapi": "3.1.0", "info": {"title": "bad", "version": "1"}, "paths": {"/x": {"get": operation}}}
    server.description = json.dumps(description).encode()  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


def test_server_errors_are_found(bad_service: int, findings: Findings) -> None:
    send_described(f"http://127.0.0.1:{bad_service}", 1, 0, findings, lambda: None)
    assert any("GET /x: status 500 without our JSON" in kind for kind in findings.counts)
    asyncio.run(send_hostile(bad_service, range(4), 0, findings))
    assert "wire: status 500 without our JSON" in findings.counts


def test_the_service_answers_hostile_requests(service: Serving, findings: Findings) -> None:
    host, port = service.address
    described = send_described(f"http://{host}:{port}", 60, 0, findings, lambda: None)
    wire = asyncio.run(send_hostile(port, range(100), 0, findings))
    assert findings.lines() == []
    assert described.count_of_all >= 60
    assert wire.count_of_all == 100
    assert {200, 400, 422} <= set(described.statuses | wire.statuses)


def test_a_soak_explains_every_request(tmp_path: Path) -> None:
    (tmp_path / "tasks").mkdir()
    options = {"dtype": "float32", "calibration-repeats": 0, "workers": 1, "threads": 1, "max-batch": 4}
    service = Service(tmp_path / "tasks", tmp_path / "log", options)
    ledger, supervisor = soak(service, 8.0, seed=0, full=False)
    assert ledger.failures == []
    assert ledger.counts["answered"]
    assert len(supervisor.lives) == 1 + ledger.counts["killed and started"] >= 2


def test_a_soak_tells_wrong_answers() -> None:
    (subject,) = subjects([("steady", "digits")])
    first, second, _ = subject.versions
    assert subject.judge(first.digest, 0, first.expected[0]) is None
    assert "instead of" in (subject.judge(second.digest, 0, first.expected[0]) or "")
    assert "no version" in (subject.judge("0" * 64, 0, first.expected[0]) or "")


def changed(data: bytes, change: Callable[[dict[str, Any], dict[str, Any]], None]) -> bytes:
    """A task file whose description of tensors and header are others."""
    length = int.from_bytes(data[:8], "little")
    outer = json.loads(data[8 : 8 + length])
    inner = json.loads(outer["__metadata__"]["fpet"])
    change(outer, inner)
    if outer["__metadata__"] is not None:
        outer["__metadata__"]["fpet"] = json.dumps(inner)
    text = json.dumps(outer).encode()
    return len(text).to_bytes(8, "little") + text + data[8 + length :]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda _, inner: inner["preprocessing"].update(mean=[10**400, 0, 0]), "not finite"),
        (lambda outer, _: outer.update(__metadata__=None), "no field 'fpet'"),
        (lambda outer, _: outer["head.bias"].update(shape=[1] * 70 + [3]), "dimensions"),
        (lambda _, inner: inner["preprocessing"].update(size=[2**31, 2**31]), "cannot run on images"),
        (lambda _, inner: inner["preprocessing"].update(size=[2**63, 2**63]), "cannot run on images"),
        (lambda _, inner: inner["adapter"]["arguments"].update(dim=10**9), "instead of"),
        (lambda _, inner: inner["adapter"]["arguments"].update(dim=10**30), "make no model"),
    ],
    ids=["huge mean", "no metadata", "many dimensions", "huge images", "endless images", "huge adapter", "no adapter"],
)
def test_task_files_ask_for_no_more_than_they_hold(change: Callable[..., None], message: str) -> None:
    backbone = samples.backbone()
    data = changed(samples.tasks(backbone)[1], change)
    started = time.thread_time()
    with pytest.raises(TaskError, match=message):
        Task.parse(data, FILE).build(backbone)
    assert time.thread_time() - started < 1


def test_shapes_without_values_leave_no_trace() -> None:
    codebook.cache_clear()
    with torch.device("meta"):
        book = codebook(4)
    assert book.codes.device.type == "cpu"


@pytest.mark.parametrize("damage", [(b"PK\1\2", 8, b"\xff\xff"), (b"PK\1\2", 6, b"\xff\0")])
def test_archives_with_damaged_directories_are_refused(damage: tuple[bytes, int, bytes], tmp_path: Path) -> None:
    signature, offset, value = damage
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("é.npy", b"")
    data = bytearray(buffer.getvalue())
    at = data.index(signature) + offset
    data[at : at + len(value)] = value
    (tmp_path / "weights.npz").write_bytes(data)
    with pytest.raises(BackboneError, match=r"weights\.npz"):
        read_checkpoint(tmp_path / "weights.npz")


def test_an_application_that_answers_what_is_no_http_after_all_is_not_heard(service: Serving) -> None:
    """Its answer once met a connection that had been answered with 400, which counted as an internal error."""
    before = service.metric("failures_total", reason="internal_error")
    broken = b"POST /v1/tasks/none/classify HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nno length\r\n"
    with socket.create_connection(service.address, timeout=30) as client:
        client.sendall(broken)
        answer = b"".join(iter(lambda: client.recv(1000), b""))
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert service.metric("failures_total", reason="internal_error") == before
