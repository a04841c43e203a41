"""The client against the real service: every form of image, every method, and the two clients alike."""

from __future__ import annotations

import dataclasses
import inspect
import io
import math
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pictures
import pytest
from PIL import Image
from serving import Files, Serving, serving, small_settings, write_foldable

import fpet.client
from fpet.client import (
    AsyncClient,
    Classification,
    Client,
    ConflictError,
    DeadlineExceededError,
    ForbiddenError,
    InvalidRequestError,
    NotFoundError,
    NotReadyError,
    OverloadedError,
    RefusedImageError,
    ServiceError,
    Timings,
    UnauthorizedError,
    UnreachableError,
)
from fpet.errors import ImageError, TaskError, UnsupportedError

KEY = "correct horse battery"
IMAGES = [pictures.png(seed) for seed in range(23)]
VECTORS = ("probabilities", "logits", "embedding")


MAX_BODY = 150_000


@pytest.fixture(scope="module")
def own(small_files: Files, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A service with narrow limits, whose tasks can be changed."""
    tasks = tmp_path_factory.mktemp("client") / "tasks"
    shutil.copytree(small_files.tasks, tasks)
    files = Files(small_files.backbone, tasks)
    with serving(small_settings(files, admin_key=KEY, watch=False, max_images=16, max_body=MAX_BODY)) as running:
        yield running


def url(service: Serving) -> str:
    return str(service.client.base_url)


@pytest.fixture
def client(service: Serving) -> Iterator[Client]:
    with Client(url(service)) as client:
        yield client


def labels(answers: list[Classification]) -> list[tuple[object, ...]]:
    """All that does not depend on what shared a batch, nor on the clock."""
    return [
        (one.task, one.digest, one.generation, one.tokens, [best.label for best in one.predictions]) for one in answers
    ]


def assert_alike(ours: list[Classification], others: list[Classification]) -> None:
    assert labels(ours) == labels(others)
    for one, other in zip(ours, others, strict=True):
        assert one.logits == pytest.approx(other.logits, abs=1e-5)


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
    (full,) = client.classify(IMAGES[0], "digits", tokens="full")
    assert (full.tokens.out, full.logits, len(full.predictions)) == (17, None, 5)


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


def requests(service: Serving, code: str, task: str = "digits") -> float:
    return service.metric("requests_total", task=task, code=code)


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
    for wrong in ([], ["digits", "digits"]):
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
    with pytest.raises(ImageError, match="image 0: a int is no image"):
        client.classify([5], "digits")  # type: ignore[list-item]


def test_what_no_image_is_to_blame_for_is_raised(client: Client) -> None:
    with pytest.raises(NotFoundError, match="no task 'shoes'") as unknown:
        client.classify_each(IMAGES, "shoes")
    assert (unknown.value.status, unknown.value.error_type) == (404, "unknown_task")
    with pytest.raises(InvalidRequestError, match="10 labels"):
        client.classify_each(IMAGES, "digits", top_k=11)


def test_a_full_queue_is_an_error_with_the_time_to_come_back(service: Serving) -> None:
    admission = service.runtime.batcher.admit(service.runtime.settings.max_queue)
    service.on_loop(admission.__enter__)
    try:
        with Client(url(service), retries=0) as client, pytest.raises(OverloadedError) as error:
            client.classify(IMAGES, "digits")
    finally:
        service.on_loop(lambda: admission.__exit__(None, None, None))
    assert (error.value.retry_after or 0) >= 1


def test_it_comes_back_when_the_queue_has_room(service: Serving) -> None:
    admission = service.runtime.batcher.admit(service.runtime.settings.max_queue)
    refused = service.metric("failures_total", reason="overloaded")
    service.on_loop(admission.__enter__)
    with Client(url(service)) as client, ThreadPoolExecutor(1) as thread:
        answers = thread.submit(client.classify, IMAGES[:2], "digits")
        service.until(lambda: service.metric("failures_total", reason="overloaded") > refused)
        service.on_loop(lambda: admission.__exit__(None, None, None))
        assert len(answers.result()) == 2


def test_a_deadline_that_passes_is_an_error_and_clears_the_queue(service: Serving) -> None:
    slow = pictures.encode(Image.new("1", (3000, 3000)))
    with Client(url(service)) as client, pytest.raises(DeadlineExceededError):
        client.classify([slow] * 8, "digits", deadline=0.05)
    service.until(lambda: service.metric("queue_size") == 0)
    with Client(url(service)) as client, pytest.raises(ValueError, match="deadline = 0"):
        client.classify(IMAGES, "digits", deadline=0)


def test_what_is_told_of_tasks_is_typed(client: Client, service: Serving) -> None:
    documents = service.client.get("/v1/tasks").json()["tasks"]
    for task, document in zip(client.tasks(), documents, strict=True):
        assert client.task(task.name) == task
        said = {name: value for name, value in dataclasses.asdict(task).items() if value is not None}
        assert said.pop("tokens") == {"into": document["tokens"]["in"], "out": document["tokens"]["out"]}
        assert said.pop("labels") == tuple(document["labels"])
        assert said == {name: value for name, value in document.items() if name not in ("tokens", "labels")}


def test_savings_are_typed(client: Client, service: Serving) -> None:
    saved, document = client.savings(), service.client.get("/v1/savings").json()
    assert [dataclasses.asdict(task) for task in saved.tasks] == document["tasks"]
    assert [one.task for one in saved.calibration] == [one["task"] for one in document["calibration"]]
    for one, other in zip(saved.calibration, document["calibration"], strict=True):
        assert [dataclasses.asdict(point) for point in one.points] == other["points"]


def test_an_explanation_is_typed(client: Client, service: Serving) -> None:
    explained = client.explain(IMAGES[0], "digits")
    plain = service.client.post(
        "/v1/tasks/digits/explain", params={"format": "json"}, files={"image": IMAGES[0]}
    ).json()
    assert [list(row) for row in explained.groups] == plain["groups"]
    assert (explained.task, explained.digest, explained.tokens.out) == ("digits", plain["digest"], 9)
    with pytest.raises(RefusedImageError, match="image 0: the bytes are not an image"):
        client.explain(b"no picture", "digits")
    with pytest.raises(ImageError, match="cannot be read"):
        client.explain("missing.png", "digits")


def test_tasks_change_with_the_key(own: Serving, tmp_path: Path) -> None:
    file = write_foldable(tmp_path, "letters")
    with Client(url(own), key=KEY) as client:
        put = client.put("letters", file, if_none_match="*")
        assert (put.state, put.generation, put.adapter) == ("loaded", 1, "repadapter")
        with pytest.raises(ConflictError, match="already"):
            client.put("letters", file, if_none_match="*")
        again = client.put("letters", file.read_bytes(), if_match=put.digest or "")
        assert (again.digest, again.generation) == (put.digest, 2)
        assert client.pin("letters").pinned
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
        assert error.value.retry_after == 1
        client.load("plain")
        assert client.ready()


def test_where_nobody_listens(service: Serving) -> None:
    with Client("http://127.0.0.1:1", retries=1) as client:
        with pytest.raises(UnreachableError, match=r"GET /v1/tasks: no answer: .*refused") as error:
            client.tasks()
        assert not error.value.received
        assert not client.ready()
    with Client(url(service)) as client:
        assert client.ready()


@pytest.mark.parametrize("wrong", ["127.0.0.1:8000", "ftp://host", "http://", "http://host:port", ""])
def test_an_address_that_is_none_is_refused(wrong: str) -> None:
    for kind in (Client, AsyncClient):
        with pytest.raises(UnsupportedError, match="is no address of a service"):
            kind(wrong)


@pytest.mark.parametrize(
    "wrong", [{"timeout": 0}, {"timeout": math.inf}, {"retries": -1}, {"batch": 0}, {"concurrency": 0}, {"max_body": 0}]
)
def test_numbers_out_of_their_range_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} = "):
        Client("http://host", **wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("key", ["line\nbreak", " secret", "\x7f"])
def test_a_key_that_no_header_holds_is_refused_without_showing_it(key: str) -> None:
    with pytest.raises(UnsupportedError) as error:
        Client("http://host", key=key)
    assert key not in str(error.value)


def test_threads_may_share_a_client(client: Client) -> None:
    expected = client.classify(IMAGES, "digits", outputs=["logits"])
    with ThreadPoolExecutor(4) as threads:
        asked = [threads.submit(client.classify, IMAGES, "digits", outputs=["logits"]) for _ in range(4)]
    for answers in asked:
        assert_alike(answers.result(), expected)


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


def test_both_clients_have_the_same_methods_with_the_same_arguments() -> None:
    def methods(kind: type) -> dict[str, inspect.Signature]:
        found = inspect.getmembers(kind, inspect.isfunction)
        return {name: inspect.signature(method) for name, method in found if not name.startswith("_")}

    ours, theirs = methods(Client), methods(AsyncClient)
    assert ours.pop("close")
    assert theirs.pop("aclose")
    assert ours == theirs


def test_what_is_exported_is_all_that_a_caller_may_name() -> None:
    errors = {kind.__name__ for kind in ServiceError.__subclasses__()} | {"ServiceError"}
    assert errors <= set(fpet.client.__all__)
    assert sorted(fpet.client.__all__) == fpet.client.__all__
    assert all(hasattr(fpet.client, name) for name in fpet.client.__all__)


def run(script: str) -> str:
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout


def test_the_client_needs_no_torch_and_says_that_it_needs_httpx() -> None:
    assert run("import sys, fpet.client; print('torch' in sys.modules)") == "False\n"
    script = """
import sys
sys.modules["httpx"] = None  # how Python marks what cannot be imported
try:
    import fpet.client
except ImportError as error:
    print(error)
"""
    assert run(script) == "asking a service needs the package httpx: pip install 'fpet-serve[client]'\n"
