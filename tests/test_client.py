"""The client against the real service: every form and number of images, and every reason not to answer."""

from __future__ import annotations

import dataclasses
import io
import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pictures
import pytest
from asking import IMAGES, assert_alike, requests, url
from full_queue import full
from PIL import Image
from serving import Serving

from fpet.client import (
    Classification,
    Client,
    DeadlineExceededError,
    InvalidRequestError,
    NotFoundError,
    OverloadedError,
    RefusedImageError,
)
from fpet.errors import ImageError

VECTORS = ("probabilities", "logits", "embedding")


def test_an_answer_says_all_that_the_service_says(client: Client, service: Serving) -> None:
    (answer,) = client.classify(IMAGES[0], "digits", top_k=3, outputs=VECTORS)
    plain = service.classify(IMAGES[0], top_k=3, outputs=list(VECTORS)).json()
    assert (answer.task, answer.digest, answer.generation) == ("digits", plain["digest"], plain["generation"])
    assert (answer.tokens.into, answer.tokens.out) == (17, 9)
    assert [dataclasses.asdict(one) for one in answer.predictions] == [
        {**one, "probability": pytest.approx(one["probability"])} for one in plain["predictions"][0]
    ]
    assert answer.best == answer.predictions[0]
    for name in VECTORS:
        assert getattr(answer, name) == pytest.approx(plain[name][0], abs=1e-5)
    assert 0 < answer.timings.inference <= answer.timings.total
    (unreduced,) = client.classify(IMAGES[0], "digits", tokens="full")
    assert (unreduced.tokens.out, unreduced.logits, len(unreduced.predictions)) == (17, None, 5)


def test_every_form_of_an_image_is_answered_alike(client: Client, tmp_path: Path) -> None:
    path = tmp_path / "image.png"
    path.write_bytes(IMAGES[0])
    with path.open("rb") as file, Image.open(path) as image:
        forms = [IMAGES[0], bytearray(IMAGES[0]), path, str(path), file, io.BytesIO(IMAGES[0]), image, np.array(image)]
        answers = client.classify(forms, "digits", outputs=["logits"])
        lone = [client.classify(form, "digits", outputs=["logits"])[0] for form in (path, str(path), image)]
        stack = client.classify(np.stack([np.array(image)] * 2), "digits", outputs=["logits"])
    for one in (*answers, *lone, *stack):
        assert one.logits == pytest.approx(answers[0].logits, abs=1e-5)
    assert len(answers) == len(forms)


def test_any_number_of_images_is_answered_in_order_by_requests_of_a_batch(service: Serving) -> None:
    expected = [service.classify(image, outputs="logits").json()["logits"][0] for image in IMAGES]
    before = service.metric("requests_total", task="digits", code="200")
    with Client(url(service), batch=3, concurrency=4) as client:
        answers = client.classify(iter(IMAGES), "digits", outputs=["logits"])
        assert client.classify([], "digits") == []
    assert service.metric("requests_total", task="digits", code="200") - before == math.ceil(len(IMAGES) / 3)
    for answer, logits in zip(answers, expected, strict=True):
        assert answer.logits == pytest.approx(logits, abs=1e-5)


def test_several_tasks_answer_each_image(client: Client, service: Serving) -> None:
    answers = client.classify_many(IMAGES, ["plain", "digits"], top_k=2, outputs=["logits"])
    assert list(answers) == ["plain", "digits"]
    for task, ours in answers.items():
        assert_alike(ours, client.classify(IMAGES, task, top_k=2, outputs=["logits"]))
    before = requests(service, "200", "plain")
    with Client(url(service), batch=5) as few:
        assert few.classify_many(IMAGES[:4], "plain").keys() == {"plain"}
        few.classify_many(IMAGES[:4], ("digits", "plain"))  # two images a request
    assert requests(service, "200", "plain") - before == 1 + 2
    for wrong in ([], ["digits", "digits"], "digits,plain"):
        with pytest.raises(ValueError, match="each once"):
            client.classify_many(IMAGES, wrong)


def test_a_bad_image_is_named_and_holds_up_no_other(client: Client, tmp_path: Path) -> None:
    bad = tmp_path / "bad.png"
    bad.write_bytes(b"no picture")
    images = [*IMAGES[:5], bad, *IMAGES[5:20], tmp_path / "missing.png", np.zeros((3, 4, 4), dtype=np.float32), b""]
    answers = client.classify_each(images, "digits", outputs=["logits"])
    failed = {i: str(one) for i, one in enumerate(answers) if isinstance(one, ImageError)}
    assert failed == {
        5: f"{bad}: the bytes are not an image",
        21: f"{tmp_path / 'missing.png'}: cannot be read: No such file or directory",
        22: "image 22: pixels are uint8 [H, W, 3], not float32 [3, 4, 4]",
        23: "image 23: the image is empty",
    }
    refused = answers[5]
    assert isinstance(refused, RefusedImageError)
    assert (refused.status, refused.error_type) == (400, "bad_image")
    assert_alike(
        [one for one in answers if isinstance(one, Classification)],
        client.classify(IMAGES[:20], "digits", outputs=["logits"]),
    )
    with pytest.raises(RefusedImageError, match=r"bad\.png: the bytes are not an image"):
        client.classify(images, "digits")
    with pytest.raises(ImageError, match=r"image 0: .* open as text"), bad.open() as text:
        client.classify(io.StringIO(text.read()), "digits")  # type: ignore[arg-type]
    with pytest.raises(ImageError, match="image 0: an object of type int is no image"):
        client.classify([5], "digits")  # type: ignore[list-item]


def test_what_no_image_is_to_blame_for_is_raised(client: Client) -> None:
    with pytest.raises(NotFoundError, match="no task 'shoes'") as unknown:
        client.classify_each(IMAGES, "shoes")
    assert (unknown.value.status, unknown.value.error_type) == (404, "unknown_task")
    with pytest.raises(InvalidRequestError, match="10 labels"):
        client.classify_each(IMAGES, "digits", top_k=11)


def test_a_full_queue_is_an_error_with_the_time_to_come_back(service: Serving) -> None:
    with full(service), Client(url(service), retries=0) as client, pytest.raises(OverloadedError) as error:
        client.classify(IMAGES, "digits")
    assert (error.value.retry_after or 0) >= 1


def test_it_comes_back_when_the_queue_has_room(service: Serving) -> None:
    refused = service.metric("failures_total", reason="overloaded")
    with Client(url(service)) as client, ThreadPoolExecutor(1) as thread:
        with full(service):
            answers = thread.submit(client.classify, IMAGES[:2], "digits")
            service.until(lambda: service.metric("failures_total", reason="overloaded") > refused)
        assert len(answers.result()) == 2


def test_a_deadline_that_passes_is_an_error_and_clears_the_queue(service: Serving) -> None:
    slow = pictures.encode(Image.new("1", (3000, 3000)))
    with Client(url(service)) as client, pytest.raises(DeadlineExceededError):
        client.classify([slow] * 8, "digits", deadline=0.05)
    service.until(lambda: service.metric("queue_size") == 0)
    with Client(url(service)) as client, pytest.raises(ValueError, match="deadline = 0"):
        client.classify(IMAGES, "digits", deadline=0)


def test_threads_may_share_a_client(client: Client) -> None:
    expected = client.classify(IMAGES, "digits", outputs=["logits"])
    with ThreadPoolExecutor(4) as threads:
        asked = [threads.submit(client.classify, IMAGES, "digits", outputs=["logits"]) for _ in range(4)]
    for answers in asked:
        assert_alike(answers.result(), expected)
