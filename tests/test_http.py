"""The real service over real HTTP: every form of input, every wrong one, and what happens beside each other."""

from __future__ import annotations

import base64
import json
import re
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pictures
import pytest
import torch
from asgi import multipart
from PIL import Image
from serving import Files, Serving, serving, small_settings

IMAGES = [pictures.png(seed) for seed in range(4)]
FORM = {"content-type": "multipart/form-data; boundary=frontier"}


# Eight images that take long to decode, in few bytes.
SLOW = multipart([pictures.encode(Image.new("1", (7000, 7000)))] * 8)


def send(service: Serving, body: bytes, announced: int | None = None) -> socket.socket:
    """Begins a request by hand."""
    head = (
        f"POST /v1/tasks/digits/classify HTTP/1.1\r\nhost: x\r\ncontent-length: {announced or len(body)}\r\n"
        f"content-type: {FORM['content-type']}\r\n\r\n"
    )
    connection = socket.create_connection(service.address)
    connection.sendall(head.encode() + body)
    return connection


def probabilities(answer: httpx.Response) -> list[list[float]]:
    assert answer.status_code == 200, answer.text
    vectors: list[list[float]] = answer.json()["probabilities"]
    return vectors


def close(a: list[float], b: list[float]) -> bool:
    return a == pytest.approx(b, abs=1e-5)


def test_one_image_is_classified(service: Serving) -> None:
    answer = service.classify(IMAGES[0])
    assert answer.status_code == 200
    body = answer.json()
    assert body["task"] == "digits"
    assert body["generation"] == 1
    assert body["tokens"] == {"in": 17, "out": 9}
    assert set(body["timings_ms"]) == {"decode", "queue", "inference", "total"}
    (best,) = body["predictions"]
    assert len(best) == 5
    assert [one["label"] for one in best] == [str(one["index"]) for one in best]
    ordered = [one["probability"] for one in best]
    assert ordered == sorted(ordered, reverse=True)


def test_headers_say_what_the_body_says(service: Serving) -> None:
    answer = service.classify(IMAGES[0])
    body, headers = answer.json(), answer.headers
    assert (headers["x-tokens-in"], headers["x-tokens-out"]) == ("17", "9")
    assert headers["x-task-digest"] == body["digest"]
    for stage in ("queue", "inference", "total"):
        assert float(headers[f"x-{stage}-time"]) == body["timings_ms"][stage]
    stages = body["timings_ms"]
    assert stages["decode"] + stages["queue"] + stages["inference"] <= stages["total"]


def test_the_three_ways_to_send_images_agree(service: Serving) -> None:
    url, query = "/v1/tasks/digits/classify", {"outputs": "probabilities"}
    raw = [probabilities(service.classify(image, outputs="probabilities"))[0] for image in IMAGES]
    form = service.client.post(url, params=query, files=[("any", ("x.png", image)) for image in IMAGES])
    texts = [base64.b64encode(image).decode() for image in IMAGES]
    texts[0] = f"data:image/png;base64,{texts[0]}"
    in_json = service.client.post(url, params=query, json={"images": texts})
    for answer in (form, in_json):
        assert all(map(close, probabilities(answer), raw))
        assert len(answer.json()["predictions"]) == len(IMAGES)
    assert not close(raw[0], raw[1])


def test_answers_do_not_depend_on_what_is_asked_at_the_same_time(service: Serving) -> None:
    images = [pictures.png(seed) for seed in range(12)]
    questions = [
        (image, task, tokens) for image in images for task in ("digits", "plain") for tokens in ("reduced", "full")
    ]

    def ask(question: tuple[bytes, str, str]) -> list[float]:
        image, task, tokens = question
        return probabilities(service.classify(image, task, tokens=tokens, outputs="probabilities"))[0]

    alone = [ask(question) for question in questions]
    batches = service.metric("batch_size_count")
    with ThreadPoolExecutor(16) as pool:
        together = list(pool.map(ask, questions))
    assert all(map(close, together, alone))
    assert service.metric("batch_size_count") - batches < len(questions)


@pytest.mark.parametrize("kind", pictures.LEGITIMATE)
def test_legitimate_images_are_classified(service: Serving, kind: str) -> None:
    assert service.classify(pictures.LEGITIMATE[kind]).status_code == 200


def test_options(service: Serving) -> None:
    full = service.classify(IMAGES[0], tokens="full", top_k=3)
    assert full.json()["tokens"] == {"in": 17, "out": 17}
    assert [len(best) for best in full.json()["predictions"]] == [3]
    plain = service.classify(IMAGES[0], "plain")
    assert {one["label"] for one in plain.json()["predictions"][0]} == {"cat", "dog", "émeu"}
    vectors = service.classify(IMAGES[0], outputs=["logits", "embedding"]).json()
    assert [len(one) for one in vectors["logits"]] == [10]
    assert [len(one) for one in vectors["embedding"]] == [24]
    assert "probabilities" not in vectors


@pytest.mark.parametrize(
    ("image", "status", "error_type"),
    [
        (b"", 400, "bad_request"),
        (b"not an image", 400, "bad_image"),
        (IMAGES[0][:-30], 400, "bad_image"),
        (pictures.animated("GIF"), 400, "bad_image"),
        (pictures.encode(pictures.scene(), "TIFF"), 415, "unsupported_type"),
        (pictures.hundred_megapixels(), 413, "too_large"),
    ],
    ids=["empty", "undecodable", "truncated", "animated", "tiff", "100 megapixels"],
)
def test_bad_images_are_refused_with_a_sentence(service: Serving, image: bytes, status: int, error_type: str) -> None:
    answer = service.classify(image)
    assert answer.status_code == status
    assert answer.json()["error_type"] == error_type
    assert " " in answer.json()["error"]
    assert service.classify(IMAGES[0]).status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/v1/tasks/nothing/classify", 404),
        ("GET", "/v1/tasks/nothing", 404),
        ("POST", "/v1/tasks/..%2Fdigits/classify", 404),
        ("GET", "/nowhere", 404),
        ("GET", "/v1/tasks/digits/classify", 405),
        ("POST", "/v1/tasks/digits/classify?top_k=0", 422),
        ("POST", "/v1/tasks/digits/classify?top_k=11", 422),
        ("POST", "/v1/tasks/digits/classify?tokens=few", 422),
        ("POST", "/v1/tasks/digits/classify?outputs=thoughts", 422),
        ("POST", "/v1/tasks/digits/classify?topk=1", 422),
    ],
)
def test_every_error_has_the_one_form(service: Serving, method: str, path: str, status: int) -> None:
    answer = service.client.request(method, path, content=IMAGES[0], headers={"content-type": "image/png"})
    assert answer.status_code == status
    assert set(answer.json()) == {"error", "error_type"}


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", "video/mp4"])
def test_other_content_types_are_refused_by_naming_those_accepted(service: Serving, content_type: str) -> None:
    answer = service.client.post("/v1/tasks/digits/classify", content=b"x", headers={"content-type": content_type})
    assert answer.status_code == 415
    assert "multipart/form-data" in answer.json()["error"]


def test_ten_thousand_parts_are_refused_quickly(service: Serving) -> None:
    started = time.perf_counter()
    answer = service.client.post("/v1/tasks/digits/classify", content=multipart([IMAGES[0]] * 10_000), headers=FORM)
    assert answer.status_code == 413
    assert answer.json() == {"error": "the request has more than 64 images", "error_type": "too_large"}
    assert time.perf_counter() - started < 5


def test_a_body_over_the_limit_is_refused(service: Serving) -> None:
    too_long = bytes(service.runtime.settings.max_body + 1)
    assert service.classify(too_long).status_code == 413
    chunked = (too_long[i : i + 2**20] for i in range(0, len(too_long), 2**20))
    answer = service.client.post("/v1/tasks/digits/classify", content=chunked, headers={"content-type": "image/png"})
    assert answer.status_code == 413


def test_one_bad_image_of_several_is_named(service: Serving) -> None:
    answer = service.client.post(
        "/v1/tasks/digits/classify", content=multipart([IMAGES[0], b"bad", IMAGES[1]]), headers=FORM
    )
    assert answer.status_code == 400
    assert answer.json()["error"] == "image 1: the bytes are not an image"


def test_a_full_queue_refuses_before_decoding_and_recovers(service: Serving) -> None:
    admission = service.runtime.batcher.admit(service.runtime.settings.max_queue)
    decoded = service.metric("decode_duration_seconds_count")
    service.on_loop(admission.__enter__)
    try:
        assert service.metric("queue_size") == service.runtime.settings.max_queue
        answer = service.classify(IMAGES[0])
    finally:
        service.on_loop(lambda: admission.__exit__(None, None, None))
    assert answer.status_code == 429
    assert answer.json()["error_type"] == "overloaded"
    assert int(answer.headers["retry-after"]) >= 1
    assert service.metric("decode_duration_seconds_count") == decoded
    assert service.classify(IMAGES[0]).status_code == 200


def test_a_client_that_leaves_is_counted_and_nobody_else_notices(small_files: Files) -> None:
    with serving(small_settings(small_files, decode_threads=1)) as fresh:
        left_while_sending = send(fresh, SLOW[:100], announced=len(SLOW))
        left_while_waiting = send(fresh, SLOW)
        left_while_sending.close()
        left_while_waiting.close()
        fresh.until(lambda: fresh.metric("requests_total", task="digits", code="499") == 2)
        assert fresh.metric("failures_total", reason="client_gone") == 2
        assert fresh.metric("queue_size") == 0
        assert fresh.classify(IMAGES[0]).status_code == 200


def test_the_deadline_is_answered_with_504(small_files: Files) -> None:
    with serving(small_settings(small_files, decode_threads=1, deadline=0.3)) as hurried:
        answer = hurried.client.post("/v1/tasks/digits/classify", content=SLOW, headers=FORM)
        assert answer.status_code == 504
        assert answer.json() == {
            "error": "no answer was ready within 0.3 seconds",
            "error_type": "deadline_exceeded",
        }
        assert hurried.metric("batch_size_count") == 0
        assert hurried.metric("queue_size") == 0


@pytest.mark.parametrize(("milliseconds", "status"), [("60000", 200), ("0", 422), ("soon", 422)])
def test_a_client_says_how_long_it_waits(service: Serving, milliseconds: str, status: int) -> None:
    headers = {"content-type": "image/png", "x-deadline-ms": milliseconds}
    answer = service.client.post("/v1/tasks/digits/classify", content=IMAGES[0], headers=headers)
    assert answer.status_code == status, answer.text


def test_whose_time_is_up_enters_no_batch(service: Serving) -> None:
    batches = service.metric("batch_size_count")
    headers = {"content-type": "image/png", "x-deadline-ms": "0.01"}
    answer = service.client.post("/v1/tasks/digits/classify", content=IMAGES[0], headers=headers)
    assert answer.status_code in (408, 504)  # it may be up before the image has arrived
    assert service.metric("batch_size_count") == batches


def test_a_failing_batch_is_an_id_to_its_own_clients_alone(small_files: Files) -> None:
    with serving(small_settings(small_files)) as damaged:
        task = damaged.runtime.catalog.loaded("digits")
        whole = task.weights
        object.__setattr__(task, "weights", whole._replace(head=torch.zeros(1, 1)))
        answer = damaged.classify(IMAGES[0])
        assert answer.status_code == 500
        assert re.fullmatch(r"internal error [0-9a-f]{32}", answer.json()["error"])
        assert answer.json()["error_type"] == "internal_error"
        assert damaged.metric("failures_total", reason="internal_error") == 1
        assert damaged.classify(IMAGES[0], "plain").status_code == 200
        object.__setattr__(task, "weights", whole)
        assert damaged.classify(IMAGES[0]).status_code == 200


def test_metrics_show_requests_tokens_and_what_was_saved(small_files: Files) -> None:
    with serving(small_settings(small_files)) as fresh:
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
        (point, *_) = fresh.runtime.engine.calibration(fresh.runtime.catalog.loaded("digits"))
        assert baseline / seconds == pytest.approx(point.ratio)
        (saved,) = [one for one in savings["tasks"] if one["task"] == "digits"]
        assert saved["images"] == 3
        assert saved["speedup"] == pytest.approx(point.ratio)


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


def test_health_and_documentation(service: Serving) -> None:
    assert service.client.get("/livez").json() == {"status": "alive"}
    assert service.client.get("/readyz").json() == {"status": "ready"}
    assert service.client.get("/").headers["location"] == "/docs"
    assert service.client.get("/docs").status_code == 200
    described = service.client.get("/openapi.json").json()["paths"]["/v1/tasks/{task}/classify"]["post"]
    assert set(described["requestBody"]["content"]) >= {"image/*", "multipart/form-data", "application/json"}
    for code in ("200", "400", "404", "413", "415", "422", "429", "503", "504"):
        assert code in described["responses"]
    json.dumps(described)
