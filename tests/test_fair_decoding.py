"""Whose images are decoded, and whose documents are parsed, when: tasks take turns, whatever one of them is sent."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pictures
import pytest
from PIL import Image
from serving import Files, Serving, serving, small_settings

HOT = 24
# As large as images may be that are decoded beside others; it takes far longer than anything else does here.
LARGE = pictures.encode(Image.new("RGB", (3500, 3500)))


# And a document that takes far longer to be parsed.
DOCUMENT = json.dumps({"images": [base64.b64encode(bytes(3 * 2**20)).decode()] * 2}).encode()


@pytest.fixture
def service(small_files: Files) -> Iterator[Serving]:
    with serving(small_settings(small_files, decode_threads=1)) as started:
        yield started


def test_a_task_does_not_wait_for_all_images_of_another(service: Serving) -> None:
    with ThreadPoolExecutor(HOT) as pool:
        hot = [pool.submit(service.classify, LARGE) for _ in range(HOT)]
        service.until(lambda: service.metric("queue_size") >= HOT / 2)
        cold = service.classify(pictures.png(), task="plain")
        left = sum(not answer.done() for answer in hot)
        assert [answer.result().status_code for answer in hot] == [200] * HOT
    assert cold.status_code == 200
    assert left > HOT / 4


@pytest.mark.parametrize("form", ["image", "document"])
def test_nor_for_all_of_its_documents(service: Serving, form: str) -> None:
    headers, image = {"content-type": "application/json"}, pictures.png()
    small = json.dumps({"images": [base64.b64encode(image).decode()]}).encode()
    with ThreadPoolExecutor(HOT) as pool:
        hot = [
            pool.submit(service.client.post, "/v1/tasks/digits/classify", content=DOCUMENT, headers=headers)
            for _ in range(HOT)
        ]
        service.until(lambda: service.metric("queue_size") >= HOT / 2)
        if form == "image":
            cold = service.classify(image, task="plain")
        else:
            cold = service.client.post("/v1/tasks/plain/classify", content=small, headers=headers)
        left = sum(not answer.done() for answer in hot)
        assert [answer.result().status_code for answer in hot] == [400] * HOT  # what they hold is no image
    assert cold.status_code == 200
    assert left > HOT / 4
