"""The metrics of a running service: what counts as a request, what an operator is told, and what it costs to ask."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.metadata import version

import pytest
import torch
from classify_requests import CLASSIFY, IMAGES
from inference_requests import ENCODED, INFER, TEXT
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from serving import ADMIN, Files, Serving

IMAGE = {"content": IMAGES[0], "headers": {"content-type": "image/png"}}


class Looking(Collector):
    """Has no series, and notes the thread of every collection of all of them."""

    def __init__(self) -> None:
        self.threads: list[int] = []

    def collect(self) -> Iterable[Metric]:
        self.threads.append(threading.get_ident())
        return []


@contextmanager
def looking(service: Serving) -> Iterator[Looking]:
    collector, registry = Looking(), service.runtime.metrics.registry
    registry.register(collector)
    yield collector
    registry.unregister(collector)


@pytest.mark.parametrize(
    "path",
    [
        "/metrics",
        "/v1/savings",
        "/v2/models/stats",
        "/v2/models/digits/stats",
        "/v2/models/digits/versions/1/stats",
    ],
)
def test_series_are_collected_once_and_beside_the_event_loop(service: Serving, path: str) -> None:
    with looking(service) as seen:
        assert service.client.get(path).status_code == 200
    assert len(seen.threads) == 1  # for two tasks, and several numbers of each
    assert seen.threads[0] != service.on_loop(threading.get_ident)


def requests(service: Serving, code: int) -> tuple[float, float]:
    """Those that named the task, and those that were timed."""
    return (
        service.metric("requests_total", code=str(code), task="digits"),
        service.metric("request_duration_seconds_count", code=str(code)),
    )


def test_only_what_infers_counts_as_a_request(changeable: Serving) -> None:
    client = changeable.client
    for path in ("/v1/tasks/digits/{}", "/v2/repository/models/digits/{}"):
        for change in ("unload", "load"):
            assert client.post(path.format(change), headers=ADMIN).status_code == 200
    assert client.post("/v1/tasks/digits/pin", headers=ADMIN).status_code == 422
    assert client.post("/v1/tasks/digits/load").status_code == 401
    assert client.get("/v1/tasks/digits").status_code == 200
    assert client.get(CLASSIFY).status_code == 405
    text = client.get("/metrics").text
    assert 'code="405"' not in text
    assert [requests(changeable, code) for code in (200, 401, 422)] == [(0, 0)] * 3
    tensor = {**ENCODED, "shape": [1], "data": [TEXT]}
    for path, content in (
        (CLASSIFY, IMAGE),
        ("/v1/tasks/digits/explain", IMAGE),
        (INFER, {"json": {"inputs": [tensor]}}),
    ):
        assert client.post(path, **content).status_code == 200
    assert client.post(CLASSIFY, content=b"no image", headers={"content-type": "image/png"}).status_code == 400
    assert (requests(changeable, 200), requests(changeable, 400)) == ((3, 3), (1, 1))


def test_an_operator_is_told_what_serves_and_how_much(changeable: Serving, files: Files) -> None:
    def tasks() -> dict[str, float]:
        states = ("available", "loading", "loaded", "failed")
        return {state: changeable.metric("tasks", state=state) for state in states}

    assert tasks() == {"available": 0, "loading": 0, "loaded": 2, "failed": 0}
    changeable.client.post("/v1/tasks/digits/unload", headers=ADMIN)
    assert tasks() == {"available": 1, "loading": 0, "loaded": 1, "failed": 0}
    (files.tasks / "plain.safetensors").write_bytes(b"no task")
    changeable.client.post("/v1/tasks/plain/load", headers=ADMIN)
    assert tasks() == {"available": 1, "loading": 0, "loaded": 0, "failed": 1}
    assert changeable.metric("queue_limit") == changeable.runtime.settings.max_queue
    of = {"device": "cpu", "dtype": "float32", "torch": torch.__version__, "version": version("fpet-serve")}
    assert changeable.metric("build_info", **of) == 1


def test_who_asks_for_openmetrics_gets_them(service: Serving) -> None:
    answer = service.client.get("/metrics", headers={"accept": "application/openmetrics-text; version=1.0.0"})
    assert answer.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    names = {family.name for family in text_string_to_metric_families(answer.text)}
    assert {"fpet_requests", "fpet_queue_size", "fpet_build"} <= names


@pytest.mark.parametrize("accept", ["*/*", "text/plain", "application/openmetrics-text; version=new"])
def test_all_others_get_prometheus_text(service: Serving, accept: str) -> None:
    answer = service.client.get("/metrics", headers={"accept": accept})
    assert (answer.status_code, answer.headers["content-type"].partition(";")[0]) == (200, "text/plain")
