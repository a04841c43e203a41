"""What the service tells of its tasks, its work and itself, over real HTTP."""

from __future__ import annotations

import json
from importlib.metadata import version

import pytest
from classify_requests import CLASSIFY, IMAGES
from serving import Files, Serving, serving, small_settings
from test_logs import logging_to

from service.http.request_id import HEADER
from service.logs import JsonFormatter


def test_metrics_show_requests_tokens_and_what_was_saved(small_files: Files) -> None:
    with serving(small_settings(small_files, calibration_repeats=1)) as fresh:
        for _ in range(3):
            fresh.classify(IMAGES[0])
        fresh.classify(IMAGES[0], tokens="full")
        fresh.classify(IMAGES[0], "nothing")
        fresh.classify(b"bad")
        assert fresh.metric("requests_total", task="digits", code="200") == 4
        assert fresh.metric("requests_total", task="digits", code="400") == 1
        assert fresh.metric("requests_total", task="_other", code="404") == 1
        assert fresh.metric("failures_total", reason="bad_image") == 1
        assert fresh.metric("tokens_in_total", task="digits", tokens="reduced") == 3 * 17
        assert fresh.metric("tokens_out_total", task="digits", tokens="reduced") == 3 * 9
        assert fresh.metric("task_loads_total", result="loaded") == 2
        seconds = fresh.metric("forward_seconds_total", task="digits", tokens="reduced")
        baseline = fresh.metric("forward_baseline_seconds_total", source="calibrated", task="digits")
        savings = fresh.client.get("/v1/savings").json()
        (measured,) = [one for one in savings["calibration"] if one["task"] == "digits"]
        assert [point["batch_size"] for point in measured["points"]] == [1, 2, 4]
        ratios = fresh.runtime.catalog.entries.loaded("digits").family.timings.calibration(False).ratios
        assert [point["speedup"] for point in measured["points"]] == pytest.approx(ratios, abs=1e-4)
        assert baseline / seconds == pytest.approx(ratios[0])
        (saved,) = [one for one in savings["tasks"] if one["task"] == "digits"]
        assert saved["images"] == 3
        assert saved["speedup"] == pytest.approx(ratios[0])


def test_a_request_that_names_many_tasks_counts_once(small_files: Files) -> None:
    invented = ",".join(f"t{i}" for i in range(1000))
    with serving(small_settings(small_files)) as fresh:
        for tasks, status in (("digits,plain", 200), (f"digits,{invented}", 404), ("digits,digits", 422)):
            answer = fresh.client.post(
                "/v1/classify", params={"tasks": tasks}, content=IMAGES[0], headers={"content-type": "image/png"}
            )
            assert answer.status_code == status
            assert fresh.metric("requests_total", task="digits", code=str(status)) == 1
            assert fresh.metric("request_duration_seconds_count", code=str(status)) == 1
        assert fresh.metric("requests_total", task="plain", code="200") == 1
        assert fresh.metric("requests_total", task="_other", code="404") == 1


def test_tasks_are_listed_with_what_is_known_of_them(service: Serving) -> None:
    tasks = service.client.get("/v1/tasks").json()["tasks"]
    assert [task["name"] for task in tasks] == ["digits", "plain"]
    digits = service.client.get("/v1/tasks/digits").json()
    assert digits == tasks[0]
    assert digits["state"] == "loaded"
    assert digits["labels"] == list("0123456789")
    assert digits["adapter"] == "adaptformer"
    assert digits["reducer"] == "bdm"
    assert digits["tokens"] == {"in": 17, "out": 9}
    assert digits["digest"] == service.classify(IMAGES[0]).json()["digest"]


@pytest.mark.parametrize("path", ["/livez", "/v1/tasks/digits", "/v2/models/digits", "/v1/tasks/nothing", CLASSIFY])
def test_head_is_get_without_the_body(service: Serving, path: str) -> None:
    got, head = service.client.get(path), service.client.head(path)
    assert (head.status_code, head.content) == (got.status_code, b"")
    for name in ("content-type", "content-length"):
        assert head.headers[name] == got.headers[name]


def test_a_request_for_a_head_is_logged_with_its_route(service: Serving) -> None:
    with logging_to(JsonFormatter()) as log:
        assert service.client.head("/v1/tasks/digits", headers={HEADER: "head"}).status_code == 200
        service.until(lambda: len(log.of("head")) == 1)
    (line,) = log.of("head")
    assert (line["method"], line["route"], line["bytes_out"]) == ("HEAD", "/v1/tasks/{task}", 0)


def test_health_and_documentation(service: Serving) -> None:
    assert service.client.get("/livez").json() == {"status": "alive"}
    assert service.client.get("/readyz").json() == {"status": "ready"}
    assert service.client.get("/").headers["location"] == "/docs"
    assert service.client.get("/docs").status_code == 200
    document = service.client.get("/openapi.json").json()
    assert document["info"]["version"] == version("fpet-serve")
    described = document["paths"]["/v1/tasks/{task}/classify"]["post"]
    assert set(described["requestBody"]["content"]) >= {"image/*", "multipart/form-data", "application/json"}
    for code in ("200", "400", "404", "413", "415", "422", "429", "503", "504"):
        assert code in described["responses"]
    json.dumps(described)


def test_a_proxy_may_offer_the_service_below_a_path(small_files: Files) -> None:
    with serving(small_settings(small_files, root_path="/vision")) as fresh:
        assert fresh.client.get("/openapi.json").json()["servers"] == [{"url": "/vision"}]
        assert fresh.client.get("/").headers["location"] == "/vision/docs"
        assert '"/vision/openapi.json"' in fresh.client.get("/docs").text.replace("'", '"')
        assert fresh.classify(IMAGES[0]).status_code == 200
        refused = fresh.client.put(CLASSIFY)
        assert (refused.status_code, refused.headers["allow"]) == (405, "POST")
        assert fresh.client.get("/nothing").status_code == 404
        assert fresh.metric("requests_total", task="digits", code="200") == 1
