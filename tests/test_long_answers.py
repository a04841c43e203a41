"""Answers of so many values that they are written in a thread: meanwhile others are answered, and deadlines hold."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx
import pictures
import pytest
from busy import computing, taken
from inference_requests import ENCODED
from serving import Files, Serving, copy_files, serving, small_settings, write_task
from small import small_backbone, small_header

LABELS = tuple(f"word {i}" for i in range(1000))
VECTORS = ("probabilities", "logits", "embedding")
PNG = {"content-type": "image/png"}
V1 = {"params": {"top_k": 1000, "outputs": ",".join(VECTORS)}, "content": pictures.png(), "headers": PNG}
V2 = {"json": {"inputs": [ENCODED], "outputs": [{"name": name} for name in VECTORS]}}
REQUESTS: dict[str, dict[str, Any]] = {"/v1/tasks/words/classify": V1, "/v2/models/words/infer": V2}


@pytest.fixture(scope="module")
def wordy(small_files: Files, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A service with a task of a thousand labels."""
    files = copy_files(small_files, tmp_path_factory.mktemp("wordy") / "tasks")
    backbone = small_backbone()
    header = dataclasses.replace(small_header(backbone), name="words", labels=LABELS)
    write_task(files.tasks / "words.safetensors", header, backbone)
    with serving(small_settings(files, workers=1)) as started:
        yield started


def hurried(service: Serving, seconds: float, headers: dict[str, str] | None = None) -> httpx.Client:
    """A client that waits for so long."""
    return httpx.Client(base_url=service.client.base_url, timeout=httpx.Timeout(60, read=seconds), headers=headers)


@contextmanager
def unwritten(service: Serving, path: str, client: httpx.Client) -> Iterator[Future[httpx.Response]]:
    """A request whose answer is ready in the block, and is not written before its end."""
    computed = service.metric("batch_size_count")
    with ThreadPoolExecutor(1) as pool, ExitStack() as texts:
        with computing(service):
            answer = pool.submit(client.post, path, **REQUESTS[path])
            service.until(lambda: service.metric("longest_batch_seconds") > 0)
            texts.enter_context(taken(service.runtime.pools.text))
        service.until(lambda: service.metric("batch_size_count") == computed + 1)
        yield answer


@pytest.mark.parametrize("path", REQUESTS)
def test_others_are_answered_before_a_long_answer_is_written(wordy: Serving, path: str) -> None:
    with unwritten(wordy, path, wordy.client) as answer:
        assert wordy.classify(pictures.png()).status_code == 200
        assert not answer.done()
    assert answer.result().status_code == 200
    assert len(answer.result().text) > 3 * len(LABELS)


def test_a_deadline_holds_for_the_writing_too(wordy: Serving) -> None:
    path, headers = "/v2/models/words/infer", {"x-deadline-ms": "3000"}
    with hurried(wordy, 60, headers) as client, unwritten(wordy, path, client) as answer:
        late = answer.result()
    assert (late.status_code, late.json()["error"]) == (504, "no answer was ready within 3 seconds")


def test_a_client_that_leaves_before_its_answer_is_written_is_gone(wordy: Serving) -> None:
    path = "/v1/tasks/words/classify"
    with hurried(wordy, 3) as client, unwritten(wordy, path, client) as answer:
        with pytest.raises(httpx.ReadTimeout):
            answer.result()
        wordy.until(lambda: wordy.metric("requests_total", task="words", code="499") == 1)
