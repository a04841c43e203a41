"""The client against a service with narrow limits, whose tasks change."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from asking import IMAGES, assert_alike, requests, url
from serving import KEY, Files, Serving, copy_files, serving, small_settings, write_foldable

from fpet.client import (
    AsyncClient,
    Classification,
    Client,
    ConflictError,
    ForbiddenError,
    InvalidRequestError,
    NotFoundError,
    NotReadyError,
    RefusedImageError,
    Timings,
    UnauthorizedError,
    UnreachableError,
)
from fpet.errors import ImageError, TaskError

MAX_BODY = 150_000


@pytest.fixture(scope="module")
def own(small_files: Files, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A service with narrow limits, whose tasks can be changed."""
    files = copy_files(small_files, tmp_path_factory.mktemp("client") / "tasks")
    with serving(small_settings(files, admin_key=KEY, watch=False, max_images=16, max_body=MAX_BODY)) as running:
        yield running


def test_a_batch_is_no_longer_than_a_body_may_be(own: Serving) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (15, 60, 60, 3), dtype=np.uint8)  # each more than 10 kB
    answered = requests(own, "200")
    with Client(url(own), max_body=MAX_BODY) as client:
        assert len(client.classify(noise, "digits")) == 15
    assert requests(own, "200") - answered == 2
    assert requests(own, "413") == 0


def test_a_service_that_takes_fewer_images_gets_fewer(own: Serving) -> None:
    answered, refused = requests(own, "200"), requests(own, "413")
    with Client(url(own), batch=20) as client:
        answers = client.classify(IMAGES[:20], "digits", outputs=["logits"])
        assert_alike(answers, [client.classify(image, "digits", outputs=["logits"])[0] for image in IMAGES[:20]])
    assert requests(own, "413") - refused == 1
    assert requests(own, "200") - answered == 2 + 20


def test_an_image_that_no_request_can_hold_is_refused_alone(own: Serving) -> None:
    images = [IMAGES[0], bytes(20 * MAX_BODY), IMAGES[1]]
    with Client(url(own), retries=0) as client:  # by its own account of bodies they go together
        first, refused, last = client.classify_each(images, "digits")
    assert isinstance(refused, RefusedImageError)
    assert (refused.status, refused.error_type) == (413, "too_large")
    assert str(refused) == f"image 1: the body is longer than the limit of {MAX_BODY} bytes"
    assert isinstance(first, Classification)
    assert isinstance(last, Classification)


def test_tasks_change_with_the_key(own: Serving, tmp_path: Path) -> None:
    file = write_foldable(tmp_path, "letters")
    with Client(url(own), key=KEY) as client:
        put = client.put("letters", file, if_none_match="*")
        assert (put.state, put.generation, put.adapter) == ("loaded", 1, "repadapter")
        with pytest.raises(ConflictError, match="already"):
            client.put("letters", file, if_none_match="*")
        again = client.put("letters", file.read_bytes(), if_match=put.digest or "")
        assert (again.digest, again.generation) == (put.digest, 1)
        assert client.load("letters", if_match=put.digest or "").generation == 2
        for change in (client.pin, client.unpin, client.unload, client.load):
            with pytest.raises(ConflictError, match="generation 2"):
                change("letters", if_match="another")
        assert client.pin("letters", if_match=put.digest or "").pinned
        assert client.unpin("letters").pinned is False
        assert client.unload("letters").state == "available"
        assert client.load("letters").generation == 3
        with pytest.raises(ConflictError):
            client.delete("letters", if_match="another")
        client.delete("letters", if_match="*")
        with pytest.raises(NotFoundError):
            client.task("letters")
        with pytest.raises(InvalidRequestError, match="not a complete safetensors file"):
            client.put("letters", b"no task")
        with pytest.raises(TaskError, match=r"missing\.safetensors: cannot be read"):
            client.put("letters", tmp_path / "missing.safetensors")
    with Client(url(own), key=f"{KEY}x") as wrong, pytest.raises(ForbiddenError):
        wrong.unload("digits")
    with Client(url(own)) as without, pytest.raises(UnauthorizedError):
        without.unload("digits")


def test_a_task_that_is_not_loaded_is_not_ready(own: Serving) -> None:
    with Client(url(own), key=KEY, retries=0) as client:
        client.unload("plain")
        with pytest.raises(NotReadyError) as error:
            client.classify(IMAGES, "plain")
        assert error.value.retry_after is None  # it is not about to be
        client.load("plain")
        assert client.ready()


def untimed(answers: list[Classification]) -> list[Classification]:
    never = Timings(0, 0, 0, 0)
    return [dataclasses.replace(one, timings=never, predictions=(), logits=None) for one in answers]


@pytest.mark.anyio
async def test_coroutines_answer_as_threads_do(own: Serving, tmp_path: Path) -> None:
    file = write_foldable(tmp_path, "pairs")
    bad = [*IMAGES[:3], b"no picture", *IMAGES[3:7]]
    with Client(url(own), key=KEY, batch=4) as client:
        ours = client.classify(IMAGES, "digits", outputs=["logits"])
        many = client.classify_many(IMAGES, ["digits", "plain"], outputs=["logits"])
        each = client.classify_each(bad, "digits")
        explained, told = client.explain(IMAGES[0], "digits"), client.task("digits")
        drawn = client.explain_png(IMAGES[0], "digits")
    async with AsyncClient(url(own), key=KEY, batch=4) as other:
        theirs = await other.classify(IMAGES, "digits", outputs=["logits"])
        assert_alike(theirs, ours)
        assert untimed(theirs) == untimed(ours)
        for task, answers in (await other.classify_many(IMAGES, ["digits", "plain"], outputs=["logits"])).items():
            assert_alike(answers, many[task])
        assert [str(one) for one in await other.classify_each(bad, "digits") if isinstance(one, ImageError)] == [
            str(one) for one in each if isinstance(one, ImageError)
        ]
        assert await other.explain(IMAGES[0], "digits") == explained
        assert await other.explain_png(IMAGES[0], "digits") == drawn
        assert (await other.task("digits"), (await other.tasks())[0]) == (told, told)
        assert {task.task for task in (await other.savings()).tasks} >= {"digits", "plain"}
        assert await other.ready()
        assert (await other.put("pairs", file)).state == "loaded"
        assert (await other.pin("pairs")).pinned
        assert (await other.unpin("pairs")).pinned is False
        assert (await other.unload("pairs")).state == "available"
        assert (await other.load("pairs")).state == "loaded"
        await other.delete("pairs")
        with pytest.raises(RefusedImageError, match="image 3: "):
            await other.classify(bad, "digits")
        with pytest.raises(NotFoundError):
            await other.classify(IMAGES, "pairs")
    async with AsyncClient("http://127.0.0.1:1", retries=1) as nobody:
        assert not await nobody.ready()
        with pytest.raises(UnreachableError):
            await nobody.tasks()
