"""No place, no time, a client that leaves, a batch that fails: who gets no answer, and that nobody else notices."""

from __future__ import annotations

import base64
import re
import socket
from typing import Any

import httpx
import pictures
import pytest
import torch
from asgi import multipart
from busy import busy, computing, taken
from classify_requests import CLASSIFY, FORM, IMAGES
from full_queue import full
from inference_requests import ENCODED, INFER
from PIL import Image
from serving import Files, Serving, serving, small_settings

# Eight images that take long to decode, in few bytes.
SLOW = multipart([pictures.encode(Image.new("1", (7000, 7000)))] * 8)


def send(service: Serving, body: bytes, announced: int | None = None) -> socket.socket:
    """Begins a request by hand."""
    head = (
        f"POST {CLASSIFY} HTTP/1.1\r\nhost: x\r\ncontent-length: {announced or len(body)}\r\n"
        f"content-type: {FORM['content-type']}\r\n\r\n"
    )
    connection = socket.create_connection(service.address)
    connection.sendall(head.encode() + body)
    return connection


def test_a_full_queue_refuses_before_decoding_and_recovers(service: Serving) -> None:
    decoded = service.metric("decode_duration_seconds_count")
    with full(service):
        assert service.metric("queue_size") == service.runtime.settings.max_queue
        assert service.metric("queue_fill") == 1
        answer = service.classify(IMAGES[0])
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
        answer = hurried.client.post(CLASSIFY, content=SLOW, headers=FORM)
        assert answer.status_code == 504
        assert answer.json() == {
            "error": "no answer was ready within 0.3 seconds",
            "error_type": "deadline_exceeded",
        }
        assert hurried.metric("batch_size_count") == 0
        assert hurried.metric("queue_size") == 0


BASE64 = base64.b64encode(IMAGES[0]).decode()


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CLASSIFY, {"content": IMAGES[0], "headers": {"content-type": "image/png"}}),
        (CLASSIFY, {"json": {"images": [BASE64]}}),
        (INFER, {"json": {"inputs": [ENCODED]}}),
    ],
    ids=["an image", "JSON", "v2"],
)
def test_the_deadline_is_kept_while_the_decode_threads_are_busy(
    small_files: Files, path: str, body: dict[str, Any]
) -> None:
    with serving(small_settings(small_files, decode_threads=1, deadline=0.3)) as hurried:
        with busy(hurried):
            answer = httpx.post(f"{hurried.client.base_url}{path}", timeout=20, **body)
        assert (answer.status_code, answer.json()["error"]) == (504, "no answer was ready within 0.3 seconds")
        assert hurried.metric("queue_size") == 0


def test_a_list_of_tasks_has_a_deadline_too(small_files: Files) -> None:
    with serving(small_settings(small_files, deadline=0.3)) as hurried:
        with taken(hurried.runtime.pools.text):
            assert hurried.client.get("/v1/tasks").status_code == 504
        assert len(hurried.client.get("/v1/tasks").json()["tasks"]) == 2


def test_a_client_of_v2_that_leaves_before_its_request_is_parsed_is_noticed(small_files: Files) -> None:
    with serving(small_settings(small_files, decode_threads=1)) as fresh:
        with busy(fresh):
            with pytest.raises(httpx.ReadTimeout):
                httpx.post(
                    f"{fresh.client.base_url}{INFER}",
                    json={"inputs": [ENCODED]},
                    timeout=httpx.Timeout(20, read=0.3),
                )
            fresh.until(lambda: fresh.metric("requests_total", task="digits", code="499") == 1)
        assert fresh.metric("queue_size") == 0


def test_a_process_with_a_batch_that_does_not_end_is_not_alive(small_files: Files) -> None:
    with serving(small_settings(small_files, workers=1, stuck_seconds=0.05, deadline=0.3)) as hung:
        with computing(hung):
            assert hung.classify(IMAGES[0]).status_code == 504  # for which the batch, in a thread, goes on
            answers = [hung.client.get(path) for path in ("/livez", "/v2/health/live")]
            assert hung.metric("longest_batch_seconds") > 0.05
        assert [(answer.status_code, answer.json()) for answer in answers] == [
            (503, {"status": "stuck"}), (503, {"live": False})
        ]  # fmt: skip
        hung.until(lambda: hung.client.get("/livez").status_code == 200)
        assert hung.client.get("/v2/health/live").json() == {"live": True}
        assert hung.metric("longest_batch_seconds") == 0


@pytest.mark.parametrize(("milliseconds", "status"), [("60000", 200), ("0", 422), ("soon", 422)])
def test_a_client_says_how_long_it_waits(service: Serving, milliseconds: str, status: int) -> None:
    headers = {"content-type": "image/png", "x-deadline-ms": milliseconds}
    answer = service.client.post(CLASSIFY, content=IMAGES[0], headers=headers)
    assert answer.status_code == status, answer.text


def test_whose_time_is_up_enters_no_batch(service: Serving) -> None:
    batches = service.metric("batch_size_count")
    headers = {"content-type": "image/png", "x-deadline-ms": "0.01"}
    answer = service.client.post(CLASSIFY, content=IMAGES[0], headers=headers)
    assert answer.status_code == 504
    assert service.metric("batch_size_count") == batches


def test_a_failing_batch_is_an_id_to_its_own_clients_alone(small_files: Files) -> None:
    with serving(small_settings(small_files)) as damaged:
        task = damaged.runtime.catalog.entries.loaded("digits")
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
