"""The whole process, asked in every wrong way: what it must keep to itself appears nowhere."""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pictures
import pytest
from PIL import Image
from serving import Files
from test_tracing import Collector, collecting

ADMIN, CLIENT, WRONG = "admin-key-0e6c7f2b9d", "client-key-5b1f88aa3c", "wrong-key-9a77d1c2e4"
MODEL = "Camera-of-somebody-4711"
EXIF_MODEL = 0x0110
# Of a trace whose state is malformed: its keys have no capitals.
TRACED = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01", "tracestate": f"KEY={WRONG}"}


@dataclass(frozen=True)
class Left:
    """What a service leaves behind: its log, its metrics, and what it sent to the collector."""

    log: str
    metrics: str
    traces: bytes


def photograph() -> bytes:
    """A JPEG whose EXIF data say whose camera it was."""
    exif = Image.Exif()
    exif[EXIF_MODEL] = MODEL
    return pictures.encode(pictures.scene(), "JPEG", exif=exif)


def ask(client: httpx.Client) -> list[int]:
    """Rightly and wrongly, with keys wherever somebody might put them; returns the statuses."""
    path, image = "/v1/tasks/digits/classify", {"content": photograph(), "headers": {"content-type": "image/jpeg"}}
    key = {"authorization": f"Bearer {CLIENT}"}
    answers = [
        client.post(path, content=photograph(), headers=key | {"content-type": "image/jpeg"}),
        client.post(path, json={"images": [base64.b64encode(photograph()).decode()]}, headers=key),
        client.post(path, content=photograph()[:200], headers=key | {"content-type": "image/jpeg"}),
        client.post(path, **image),  # type: ignore[arg-type]
        client.post(path, params={"api_key": CLIENT}, headers=key),
        client.post(path, json={"images": [CLIENT]}, headers=key),
        client.post(
            path, content=f"--x\r\n{CLIENT}", headers=key | {"content-type": "multipart/form-data; boundary=x"}
        ),
        client.get(f"/v1/tasks/{CLIENT}", headers=key),
        client.get(f"/{ADMIN}?{CLIENT}", headers=key | {"x-api-key": CLIENT, "user-agent": ADMIN}),
        client.get("/v1/tasks", headers={"authorization": f"Bearer {WRONG}", **TRACED}),
        client.put("/v1/tasks/digits", content=b"", headers={"authorization": f"Bearer {ADMIN}"}),
        client.put("/v1/tasks/digits", content=b"", headers=key),
        client.put("/v1/tasks/digits", content=CLIENT, headers={"authorization": f"Bearer {ADMIN}"}),
    ]
    for answer in answers:
        assert not any(secret in answer.text for secret in (ADMIN, WRONG, MODEL))
    return [answer.status_code for answer in answers]


@pytest.fixture(scope="module")
def left(small_files: Files, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Left]:
    folder = tmp_path_factory.mktemp("security")
    (folder / "admin").write_text(ADMIN)
    with collecting() as collector:
        options = {
            "port": 0,
            "backbone": small_files.backbone,
            "tasks": small_files.tasks,
            "admin-key-file": folder / "admin",
            "log-format": "json",
            "log-level": "debug",
            "otlp-endpoint": collector.address,
            "dtype": "float32",
            "threads": 1,
            "calibration-repeats": 0,
            "shutdown-delay": 0,
        }
        yield _run([f"--{name}={value}" for name, value in options.items()], folder / "log", collector)


def _run(options: list[str], log: Path, collector: Collector) -> Left:
    command = [sys.executable, "-m", "fpet.cli", "serve", *options]
    environment = os.environ | {"FPET_API_KEYS": f"{CLIENT},another-key-of-a-client"}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stderr is not None
        written, address = "", ""
        for line in process.stderr:
            written += line
            message = json.loads(line)["message"]
            if " running on " in message:
                address = message.split(" running on ")[1].split()[0]
            if message.startswith("ready: "):
                break
        with httpx.Client(base_url=address, timeout=60) as client:
            statuses = ask(client)
            metrics = client.get("/metrics").text
        process.send_signal(signal.SIGTERM)
        log.write_text(written + process.stderr.read())
    assert statuses == [200, 200, 400, 401, 422, 422, 400, 404, 404, 403, 400, 403, 422]
    return Left(log.read_text(), metrics, b"".join(body for _, body in collector.received))


@pytest.mark.parametrize("secret", [ADMIN, CLIENT, WRONG, "another-key", MODEL, "Exif", "/9j/", "Bearer"])
def test_secrets_and_images_are_written_nowhere(left: Left, secret: str) -> None:
    assert secret not in left.log
    assert secret not in left.metrics
    assert secret.encode() not in left.traces


def test_all_that_is_logged_is_json(left: Left) -> None:
    entries = [json.loads(line) for line in left.log.splitlines()]
    assert all({"time", "level", "logger", "message"} <= entry.keys() for entry in entries)
    requests = [entry for entry in entries if entry["logger"] == "service.requests"]
    assert [entry["status"] for entry in requests][:3] == [200, 200, 400]
    assert all(len(entry["request_id"]) == 32 for entry in requests)
    untraced = [entry["route"] for entry in requests if len(entry.get("trace_id", "")) != 32]
    assert untraced == ["/metrics"]
    assert any(entry["logger"] == "uvicorn.error" for entry in entries)  # the server's own lines have the same form
    assert "uvicorn.access" not in left.log


def test_what_was_refused_is_counted(left: Left) -> None:
    assert 'fpet_failures_total{reason="unauthorized"} 1.0' in left.metrics
    assert 'fpet_failures_total{reason="forbidden"} 2.0' in left.metrics


def test_the_threat_model_cites_tests_that_exist() -> None:
    root = Path(__file__).parent
    cited = re.findall(r"`(test_\w+\.py)::(test_\w+)`", (root.parent / "SECURITY.md").read_text())
    assert len(cited) > 30
    missing = [f"{file}::{name}" for file, name in cited if f"def {name}(" not in (root / file).read_text()]
    assert missing == []
