"""What a request of the Open Inference Protocol keeps in memory while it waits for its batch."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest
from inference_requests import FP32, INFER
from serving import Files, Serving, serving, small_settings

IMAGES = 8192
LENGTH = IMAGES * 3 * 16 * 16 * 4  # bytes


@pytest.fixture
def service(small_files: Files) -> Iterator[Serving]:
    limits = {"max_images": IMAGES, "max_queue": IMAGES}
    with serving(small_settings(small_files, max_batch=1024, workers=1, threads=1, **limits)) as started:
        yield started


def test_its_body_is_held_once(service: Serving) -> None:
    document = (
        f'{{"inputs": [{{"name": "{FP32["name"]}", "datatype": "FP32", "shape": [{IMAGES}, 3, 16, 16], '
        f'"parameters": {{"binary_data_size": {LENGTH}}}}}]}}'
    ).encode()

    def content() -> Iterator[bytes]:  # so that the client holds nothing of it
        yield document
        for _ in range(IMAGES):
            yield bytes(LENGTH // IMAGES)

    length = {"content-length": str(len(document) + LENGTH), "inference-header-content-length": str(len(document))}
    go_on = Event()
    service.runtime.pools.forwards.submit(go_on.wait)  # so that all of it waits
    with ThreadPoolExecutor(1) as pool:
        tracemalloc.start()
        try:
            asking = pool.submit(service.client.post, INFER, content=content(), headers=length)
            service.until(lambda: service.metric("queue_size") > IMAGES / 2)
            held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
            go_on.set()
        assert asking.result().status_code == 200
    assert LENGTH < held < 1.5 * LENGTH
