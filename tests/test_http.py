"""The real service over real HTTP: an answer is the same however it is asked for and whatever is asked beside it."""

from __future__ import annotations

import base64
import http.client
import json
import socket
from concurrent.futures import ThreadPoolExecutor

import httpx
import pictures
import pytest
from busy import computing
from classify_requests import CLASSIFY, IMAGES
from serving import Files, Serving, serving, small_settings


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
    query = {"outputs": "probabilities"}
    raw = [probabilities(service.classify(image, outputs="probabilities"))[0] for image in IMAGES]
    form = service.client.post(CLASSIFY, params=query, files=[("any", ("x.png", image)) for image in IMAGES])
    texts = [base64.b64encode(image).decode() for image in IMAGES]
    texts[0] = f"data:image/png;base64,{texts[0]}"
    in_json = service.client.post(CLASSIFY, params=query, json={"images": texts})
    for answer in (form, in_json):
        assert all(map(close, probabilities(answer), raw))
        assert len(answer.json()["predictions"]) == len(IMAGES)
    assert not close(raw[0], raw[1])


def test_an_empty_line_before_a_request_is_none(service: Serving) -> None:
    head = f"POST {CLASSIFY} HTTP/1.1\r\nhost: x\r\ncontent-type: image/png\r\ncontent-length: {len(IMAGES[0])}\r\n\r\n"
    request = b"\r\n" + head.encode() + IMAGES[0] + b"\r\n"
    with socket.create_connection(service.address, timeout=30) as connection:
        for _ in range(2):
            connection.sendall(request)
            answer = http.client.HTTPResponse(connection, method="POST")
            answer.begin()
            assert (answer.status, json.loads(answer.read())["task"]) == (200, "digits")
        connection.sendall(
            b"\r\n\r\nGET /livez HTTP/1.1\r\nhost: x\r\n\r\n"
            b"\r\n\r\nGET /livez HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
        )
        with connection.makefile("rb") as rest:
            answers = rest.read()
    assert answers.count(b"HTTP/1.1 200 ") == answers.count(b"HTTP/1.1") == 2


def test_answers_do_not_depend_on_what_is_asked_at_the_same_time(small_files: Files) -> None:
    images = [pictures.png(seed) for seed in range(12)]
    questions = [
        (image, task, tokens) for image in images for task in ("digits", "plain") for tokens in ("reduced", "full")
    ]

    def ask(question: tuple[bytes, str, str]) -> list[float]:
        image, task, tokens = question
        return probabilities(one.classify(image, task, tokens=tokens, outputs="probabilities"))[0]

    # Of as many workers as a large machine gives a service each would have an image to itself.
    with serving(small_settings(small_files, workers=1)) as one:
        alone = [ask(question) for question in questions]
        batches = one.metric("batch_size_count")
        with ThreadPoolExecutor(16) as pool:
            with computing(one):
                together = [pool.submit(ask, question) for question in questions]
                one.until(lambda: one.metric("queue_size") == 15)  # the first is a batch that waits
            assert all(map(close, [answer.result() for answer in together], alone))
        assert one.metric("batch_size_count") - batches < len(questions)


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
    assert service.classify(IMAGES[0], outputs="logits, embedding").json().keys() == vectors.keys()


@pytest.mark.parametrize("tasks", ["plain,digits", "plain,%20digits", "plain&tasks=digits,", ",%20plain%20,,digits"])
def test_several_tasks_are_named_in_any_way(service: Serving, tasks: str) -> None:
    url = f"/v1/classify?tasks={tasks}"
    answer = service.client.post(url, content=IMAGES[0], headers={"content-type": "image/png"})
    assert answer.status_code == 200, answer.text
    assert [one["task"] for one in answer.json()["results"]] == ["plain", "digits"]


def test_images_in_several_batches_are_timed_from_the_first_start_to_the_last_end(small_files: Files) -> None:
    with serving(small_settings(small_files, max_batch=1, workers=1)) as running:
        files = [("image", (f"{i}.png", pictures.png(i))) for i in range(5)]
        times = running.client.post("/v1/tasks/digits/classify", files=files).json()["timings_ms"]
        forwards = 1000 * running.metric("forward_duration_seconds_sum", tokens="reduced")  # one after another
    assert times["inference"] > 0.999 * forwards - 0.001
    assert times["queue"] + times["inference"] <= times["total"]
