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
from serving import ADMIN, Files, Serving, serving, small_settings

from service.http.limits import MAX_HEADERS
from service.task_labels import OTHER

API_KEY = "the key of a client"
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


@pytest.fixture(scope="module")
def locked(small_files: Files) -> Iterator[Serving]:
    with serving(small_settings(small_files, api_keys=API_KEY)) as running:
        yield running


TOO_MANY = {f"x-{i}": "" for i in range(MAX_HEADERS)}
REFUSED: dict[int, dict[str, str]] = {401: {}, 403: {"authorization": "Bearer no key"}, 431: TOO_MANY}
OF_DIGITS = [
    CLASSIFY,
    "/v1/classify?tasks=digits,nothing",
    "/v1/tasks/digits/explain",
    INFER,
    "/v2/models/digits/versions/1/infer",
]


def counted(service: Serving, code: int) -> list[float]:
    """Requests of the task, those of no task, and those that were timed."""
    of = {"code": str(code)}
    named = [service.metric("requests_total", **of, task=task) for task in ("digits", OTHER)]
    return [*named, service.metric("request_duration_seconds_count", **of)]


@pytest.mark.parametrize("code", REFUSED)
@pytest.mark.parametrize("path", [*OF_DIGITS, "/v1/classify"])
def test_requests_that_are_refused_before_they_are_looked_at_count(locked: Serving, path: str, code: int) -> None:
    before = counted(locked, code)
    assert locked.client.post(path, headers=REFUSED[code]).status_code == code
    of_digits, of_none = path != "/v1/classify", "digits" not in path or "nothing" in path
    added = [last - first for first, last in zip(before, counted(locked, code), strict=True)]
    assert added == [of_digits, of_none, 1]
    assert "nothing" not in locked.client.get("/metrics").text


@pytest.mark.parametrize("path", ["/v1/classify", "/v1/classify?tasks=", "/v1/classify?tasks=,"])
def test_requests_that_name_no_task_count(locked: Serving, path: str) -> None:
    before = counted(locked, 422)
    assert locked.client.post(path, headers={"authorization": f"Bearer {API_KEY}"}).status_code == 422
    assert [last - first for first, last in zip(before, counted(locked, 422), strict=True)] == [0, 1, 1]


@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/nowhere"), ("GET", CLASSIFY), ("POST", "/v1/tasks/digits/load"), ("GET", "/livez")]
)
def test_what_does_not_infer_counts_no_more_if_it_is_refused(locked: Serving, method: str, path: str) -> None:
    before = counted(locked, 431)
    assert locked.client.request(method, path, headers=TOO_MANY).status_code == 431
    assert counted(locked, 431) == before


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
    assert changeable.metric("ready") == 1
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
