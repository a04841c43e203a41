"""The Open Inference Protocol by hand, over real HTTP: its JSON, and what happens beside it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import httpx
import pytest
import torch
from full_queue import full, taken
from inference_requests import (
    ELEMENTS,
    ENCODED,
    FP32,
    GOOD,
    IMAGE,
    PIXELS,
    TEXT,
    infer,
)
from serving import ADMIN, Files, Serving, serving, small_settings

from service.metrics import MAX_TASK_LABELS


def probabilities(answer: httpx.Response) -> list[float]:
    assert answer.status_code == 200, answer.text
    (output,) = [one for one in answer.json()["outputs"] if one["name"] == "probabilities"]
    values: list[float] = output["data"]
    return values


def nested(values: Iterable[float], shape: list[int]) -> Any:
    return torch.tensor(list(values)).reshape(shape).tolist()


def test_an_answer_in_json(service: Serving) -> None:
    answer = infer(service, ENCODED, id="a\u00e9")
    body = answer.json()
    assert {key: body[key] for key in ("model_name", "model_version", "id")} == {
        "model_name": "digits",
        "model_version": "1",
        "id": "a\u00e9",
    }
    ours = service.classify(IMAGE, outputs="probabilities").json()
    values, labels = body["outputs"]
    assert values == {"name": "probabilities", "datatype": "FP32", "shape": [1, 10], "data": values["data"]}
    assert values["data"] == pytest.approx(ours["probabilities"][0], abs=1e-5)
    assert labels["data"] == [ours["predictions"][0][0]["label"]]
    assert answer.headers["x-task-digest"] == ours["digest"]
    assert (answer.headers["x-tokens-in"], answer.headers["x-tokens-out"]) == ("17", "9")
    assert "inference-header-content-length" not in answer.headers


def test_what_is_null_counts_as_absent(service: Serving) -> None:
    parameters = {**ENCODED["parameters"], "binary_data_size": None}
    nothing = {"outputs": None, "parameters": None, "id": None}
    answers = [
        infer(service, {**ENCODED, "parameters": parameters}, **nothing),
        infer(service, {**GOOD, "parameters": None}, **nothing),
        infer(service, GOOD, outputs=[{"name": "probabilities", "parameters": None}]),
        infer(service, GOOD, outputs=[{"name": "probabilities", "parameters": {"classification": None}}]),
        infer(service, GOOD, parameters={"binary_data_output": None, "tokens": None, "timeout": None}),
    ]
    expected = [probabilities(infer(service, one)) for one in (ENCODED, GOOD)]
    assert probabilities(answers[0]) == pytest.approx(expected[0], abs=1e-5)
    for answer in answers[1:]:
        assert probabilities(answer) == pytest.approx(expected[1], abs=1e-5)


def test_a_client_may_say_the_models_name_again(service: Serving) -> None:
    # As KServe's own does, which has it in its request too.
    expected = probabilities(infer(service, GOOD))
    for name in ("digits", "mine", None):
        assert probabilities(infer(service, GOOD, model_name=name)) == pytest.approx(expected, abs=1e-5)


def test_an_answer_with_binary_data(service: Serving) -> None:
    outputs = [
        {"name": "labels"},
        {"name": "logits", "parameters": {"binary_data": False}},
        {"name": "probabilities"},
    ]
    answer = infer(service, ENCODED, outputs=outputs, parameters={"binary_data_output": True})
    length = int(answer.headers["inference-header-content-length"])
    labels, logits, values = json.loads(answer.content[:length])["outputs"]
    assert (len(logits["data"]), "data" in labels, "data" in values) == (10, False, False)
    sizes = [one["parameters"]["binary_data_size"] for one in (labels, values)]
    assert len(answer.content) == length + sum(sizes)
    assert answer.content[length + sizes[0] :] == torch.tensor(logits["data"]).softmax(0).numpy().tobytes()


def test_data_may_be_nested_as_the_shape_says(service: Serving) -> None:
    flat = [i % 256 for i in range(2 * ELEMENTS)]
    two = {**PIXELS, "shape": [2, 3, 16, 16]}
    answers = [infer(service, {**two, "data": data}) for data in (flat, nested(flat, two["shape"]))]
    assert probabilities(answers[0]) == pytest.approx(probabilities(answers[1]), abs=1e-6)
    assert len(probabilities(answers[0])) == 20


def test_images_of_clients_that_batch_have_a_second_axis(service: Serving) -> None:
    nested = {**ENCODED, "shape": [1, 1], "data": [[TEXT]]}
    flat = {**ENCODED, "shape": [1, 1]}
    expected = pytest.approx(probabilities(infer(service, ENCODED)), abs=1e-6)
    assert probabilities(infer(service, nested)) == expected
    assert probabilities(infer(service, flat)) == expected


def test_pixels_and_normalised_tensors_are_in_no_batch_together(service: Serving) -> None:
    """Were they, one of them would be normalised twice or not at all."""
    pixels = [i % 251 for i in range(ELEMENTS)]
    questions = [{**PIXELS, "data": pixels}, {**FP32, "data": [value / 127.5 - 1 for value in pixels]}] * 16
    expected = probabilities(infer(service, questions[0]))
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda question: infer(service, question), questions))
    for answer in answers:
        assert probabilities(answer) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("body", [b"", b"{}", b'{"ready": true}', b'{"repository_name": ""}'])
def test_the_index_takes_a_body_or_none(service: Serving, body: bytes) -> None:
    answer = service.client.post("/v2/repository/index", content=body)
    assert [one["name"] for one in answer.json()] == ["digits", "plain"]
    refused = service.client.post("/v2/repository/index", content=b'{"ready": 1}')
    assert (refused.status_code, refused.json()["error_type"]) == (422, "invalid_request")


@pytest.mark.parametrize("path", ["index", "models/digits/load", "models/digits/unload"])
def test_what_needs_few_words_may_have_few(changeable: Serving, path: str) -> None:
    """They are parsed where all requests are answered."""
    body = b'{"x": [' + b"[]," * 30_000 + b"[]]}"
    answer = changeable.client.post(f"/v2/repository/{path}", content=body, headers=ADMIN)
    assert (answer.status_code, answer.json()["error_type"]) == (413, "too_large")


def test_tensors_wait_in_the_same_queue(service: Serving) -> None:
    with full(service):
        answer = infer(service, GOOD)
    assert answer.status_code == 429
    assert int(answer.headers["retry-after"]) >= 1
    assert infer(service, GOOD).status_code == 200


def test_every_image_of_a_tensor_needs_a_place(service: Serving) -> None:
    two = {**GOOD, "shape": [2, *GOOD["shape"][1:]], "data": 2 * GOOD["data"]}
    with taken(service, service.runtime.settings.max_queue - 1):
        assert infer(service, two).status_code == 429
        assert infer(service, GOOD).status_code == 200
    assert service.metric("queue_size") == 0


def test_whose_time_is_up_enters_no_batch(service: Serving) -> None:
    batches = service.metric("batch_size_count")
    for one in (GOOD, ENCODED):
        answer = infer(service, one, parameters={"timeout": 1})
        assert (answer.status_code, answer.json()["error"]) == (504, "no answer was ready within 1e-06 seconds")
    assert service.metric("batch_size_count") == batches
    for microseconds in (0, 2**63 - 1):
        assert infer(service, GOOD, parameters={"timeout": microseconds}).status_code == 200


def test_requests_are_counted_by_task(small_files: Files) -> None:
    with serving(small_settings(small_files)) as fresh:
        infer(fresh, GOOD)
        infer(fresh, GOOD, path="/v2/models/digits/versions/1/infer")
        infer(fresh, PIXELS)
        infer(fresh, GOOD, path="/v2/models/nothing/infer")
        for task, code, count in (("digits", "200", 2), ("digits", "422", 1), ("_other", "404", 1)):
            assert fresh.metric("requests_total", task=task, code=code) == count
        assert fresh.metric("images_total", task="digits", tokens="reduced") == 2


def test_a_model_beyond_those_that_are_counted_has_no_statistics(changeable: Serving) -> None:
    client, path = changeable.client, "/v2/models/plain{}/stats"
    assert client.post("/v1/tasks/plain/unload", headers=ADMIN).status_code == 200
    for i in range(MAX_TASK_LABELS - 1):  # all beside that of `digits`
        changeable.on_loop(partial(changeable.runtime.metrics.add_task, f"task-{i}", 1))
    assert client.post("/v1/tasks/plain/load", headers=ADMIN).status_code == 200
    for version in ("", "/versions/2"):
        answer = client.get(path.format(version))
        assert (answer.status_code, answer.json()["error_type"]) == (404, "unknown_task"), answer.text
        assert answer.json()["error"] == "'plain' has no statistics: 100 other tasks have them"
    assert [one["name"] for one in client.get("/v2/models/stats").json()["model_stats"]] == ["digits"]
    assert client.get("/v2/models/digits/stats").status_code == client.get("/v2/models/plain").status_code == 200


def test_no_model_is_ready_before_the_service_is(small_files: Files) -> None:
    with serving(small_settings(small_files)) as fresh:
        fresh.on_loop(fresh.runtime.warm.clear)
        fresh.runtime.status = "starting"
        assert infer(fresh, GOOD).status_code == 503
        fresh.on_loop(lambda: fresh.runtime.catalog.unload("plain"))  # as before it is loaded
        for path in ("/v2/models/digits/ready", "/v2/models/digits/versions/1/ready", "/v2/models/plain"):
            answer = fresh.client.get(path)
            assert (answer.status_code, answer.json()["error"]) == (503, "the service is starting")
            assert answer.headers["retry-after"] == "1"
        fresh.on_loop(lambda: fresh.runtime.catalog.load("plain"))
        assert fresh.client.get("/v2/models/nothing/ready").status_code == 404
        (digits, _) = fresh.client.post("/v2/repository/index").json()
        assert digits == {"name": "digits", "state": "UNAVAILABLE", "reason": "the service is starting"}
        assert fresh.client.post("/v2/repository/index", json={"ready": True}).json() == []
        fresh.on_loop(fresh.runtime.warm.set)
        fresh.runtime.status = "ready"
        (digits, _) = fresh.client.post("/v2/repository/index", json={"ready": True}).json()
        assert digits == {"name": "digits", "version": "1", "state": "READY", "reason": ""}


def test_health_says_what_the_probes_say(service: Serving) -> None:
    assert service.client.get("/v2/health/live").json() == {"live": True}
    assert service.client.get("/v2/health/ready").json() == {"ready": True}
    assert service.client.get("/v2/models/digits/ready").json() == {"name": "digits", "ready": True}
