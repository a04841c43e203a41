"""Who finds no place in the queue is told so at once, in every respect as if the request had been looked at."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import httpx
import pictures
import pytest
from classify_requests import CLASSIFY, MISDIRECTED, form
from full_queue import full, taken
from inference_requests import ENCODED, INFER, TEXT
from serving import Files, Serving, serving, small_settings
from test_logs import Lines, logging_to
from test_tracing import attributes, collecting

from service.http.request_id import HEADER
from service.logs import JsonFormatter

IMAGE = pictures.png()
MANY = "/v1/classify?tasks=digits,plain"
KEY = "the key of a client"
_FORM = form([IMAGE] * 2)
_TWO = {"inputs": [{**ENCODED, "shape": [2], "data": [TEXT, TEXT]}]}
# Two images, and the places that one of them needs.
TWO_IMAGES: dict[str, tuple[int, dict[str, Any]]] = {
    CLASSIFY: (1, _FORM),
    MANY: (2, _FORM),
    INFER: (1, {"json": _TWO}),
    "/v2/models/digits/versions/1/infer": (1, {"json": _TWO}),
}
COUNTERS: list[tuple[str, dict[str, str]]] = [
    ("failures_total", {"reason": "overloaded"}),
    ("request_duration_seconds_count", {"code": "429"}),
    *(("requests_total", {"code": "429", "task": task}) for task in ("digits", "plain")),
    *(("inferences_total", {"result": "failure", "task": task}) for task in ("digits", "plain")),
]


def counts(service: Serving) -> list[float]:
    registry = service.runtime.metrics.registry
    return [registry.get_sample_value(f"fpet_{name}", labels) or 0.0 for name, labels in COUNTERS]


@pytest.fixture(scope="module")
def refusals(small_files: Files) -> dict[str, dict[str, Any]]:
    """Early and late by path: what is told, counted, logged and traced."""
    with collecting() as collector, logging_to(JsonFormatter()) as log:
        with serving(small_settings(small_files, otlp_endpoint=collector.address)) as running:
            seen = {
                f"{moment}-{number}": refusal(running, log, f"{moment}-{number}", path, free)
                for number, path in enumerate(TWO_IMAGES)
                for moment, free in (("early", 0), ("late", TWO_IMAGES[path][0]))
            }
        spans = {attributes(span)["fpet.request_id"]: attributes(span) for span in collector.spans()}
    return {name: {**one, "traced": spans[name]} for name, one in seen.items()}


def refusal(service: Serving, log: Lines, request_id: str, path: str, free: int) -> dict[str, Any]:
    before = counts(service)
    request = service.client.build_request("POST", path, **TWO_IMAGES[path][1])
    request.headers[HEADER] = request_id
    with taken(service, service.runtime.settings.max_queue - free):
        answer = service.client.send(request)
    service.until(lambda: bool(log.of(request_id)))
    counted = [last - first for first, last in zip(before, counts(service), strict=True)]
    (line,) = log.of(request_id)
    return {"answer": told(answer), "counted": counted, "logged": line}


def told(answer: httpx.Response) -> dict[str, Any]:
    assert int(answer.headers["retry-after"]) >= 1
    return {"status": answer.status_code, "headers": sorted(answer.headers), **answer.json()}


_VARYING = ("time", "total_ms", "bytes_in", "bytes_out", "trace_id", "request_id", "error")
_VARYING_SPAN = ("fpet.request_id", "http.request.body.size", "http.response.body.size")


def same(refusal: dict[str, Any]) -> dict[str, Any]:
    """Without what differs from one request to the next."""
    return {
        "counted": refusal["counted"],
        "sentence": re.sub(r"\d+", "N", refusal["answer"]["error"]),
        "answer": {name: value for name, value in refusal["answer"].items() if name not in _VARYING},
        "logged": {name: value for name, value in refusal["logged"].items() if name not in _VARYING},
        "traced": {name: value for name, value in refusal["traced"].items() if name not in _VARYING_SPAN},
    }


def test_a_task_that_has_no_image_in_a_full_queue_is_answered(service: Serving) -> None:
    with taken(service, service.runtime.settings.max_queue, "digits"):
        assert service.classify(IMAGE, "digits").status_code == 429
        assert service.classify(IMAGE, "plain").status_code == 200
        assert service.client.post(MANY, content=IMAGE, headers={"content-type": "image/png"}).status_code == 429


@pytest.mark.parametrize(("number", "path"), list(enumerate(TWO_IMAGES)))
def test_an_early_refusal_is_answered_and_counted_like_a_late_one(
    refusals: dict[str, dict[str, Any]], number: int, path: str
) -> None:
    early, late = refusals[f"early-{number}"], refusals[f"late-{number}"]
    assert same(early) == same(late)
    assert (early["answer"]["status"], early["answer"]["error_type"]) == (429, "overloaded")
    assert early["counted"] == ([1, 1, 1, 1, 1, 1] if path == MANY else [1, 1, 1, 0, 1, 0])
    assert (early["logged"]["bytes_in"], early["traced"]["http.request.body.size"]) == (0, 0)
    assert late["logged"]["bytes_in"] > 0  # the one difference: its body was read


@pytest.mark.parametrize("path", TWO_IMAGES)
def test_a_request_is_refused_before_it_is_looked_at(service: Serving, path: str) -> None:
    headers = {"x-deadline-ms": "soon"}
    with full(service):
        assert service.client.post(path, headers=headers).status_code == 429
    assert service.client.post(path, headers=headers).status_code == 422


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        *MISDIRECTED,
        ("GET", "/v1/tasks/digits", 200),
        ("GET", "/v2/models/digits/ready", 200),
        ("GET", "/readyz", 200),
    ],
)
def test_the_rest_does_not_depend_on_the_queue(service: Serving, method: str, path: str, status: int) -> None:
    with full(service):
        assert service.client.request(method, path).status_code == status


@pytest.mark.parametrize("path", TWO_IMAGES)
def test_who_may_not_ask_does_not_learn_of_it(locked: Serving, path: str) -> None:
    statuses = []
    with full(locked):
        for headers in ({}, {"authorization": f"Bearer {KEY}?"}, {"authorization": f"Bearer {KEY}"}):
            statuses.append(locked.client.post(path, headers=headers).status_code)
    assert statuses == [401, 403, 429]


@pytest.fixture(scope="module")
def locked(small_files: Files) -> Iterator[Serving]:
    with serving(small_settings(small_files, api_keys=KEY)) as running:
        yield running
