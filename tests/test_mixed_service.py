"""Many tasks at once over real HTTP: whatever shares a batch, every answer is that of its own task."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pictures
import pytest
import torch
from serving import Files, Serving, serving, small_settings, write_task
from small import ADAPTFORMER, small_backbone, small_header

from fpet.backbone import Backbone
from fpet.header import Method, TaskHeader
from fpet.preprocess import Preprocessing
from fpet.task import Task
from service.decode import decode_image

FAMILY = [f"task-{i}" for i in range(16)]
OTHERS = {
    "lora": {"adapter": Method("lora", {"dim": 2})},
    "larger": {"preprocessing": Preprocessing((16, 16), interpolation="bilinear"), "reducer": Method("none")},
}
NAMES = [*FAMILY, *OTHERS]
IMAGES = [pictures.png(seed) for seed in range(6)]


def headers(backbone: Backbone) -> Iterator[TaskHeader]:
    """Sixteen tasks of a family, and two others."""
    for i, name in enumerate(FAMILY):
        header = small_header(backbone, ADAPTFORMER)
        mean = (i / 16, 0.5, 0.5)
        yield dataclasses.replace(
            header, name=name, labels=tuple(map(str, range(2 + i))), preprocessing=Preprocessing((16, 16), mean)
        )
    for name, changes in OTHERS.items():
        yield dataclasses.replace(small_header(backbone), name=name, **changes)


@pytest.fixture(scope="module")
def files(small_files: Files, tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder, backbone = tmp_path_factory.mktemp("many"), small_backbone()
    for seed, header in enumerate(headers(backbone)):
        write_task(folder / f"{header.name}.safetensors", header, backbone, seed)
    return Files(small_files.backbone, folder)


@pytest.fixture(scope="module")
def many(files: Files) -> Iterator[Serving]:
    with serving(small_settings(files, max_batch=8, max_batch_tasks=6, workers=2)) as running:
        yield running


@pytest.fixture(scope="module")
def expected(files: Files) -> dict[tuple[str, int], list[float]]:
    """The logits of each task for each image, alone."""
    backbone, logits = small_backbone(), {}
    for name in NAMES:
        task = Task.load(files.tasks / f"{name}.safetensors")
        model, preprocessing = task.build(backbone), task.header.preprocessing
        for i, data in enumerate(IMAGES):
            image = preprocessing.resize(decode_image(data, ("png",), 10_000))
            with torch.inference_mode():
                logits[name, i] = model(preprocessing.normalize(image[None], torch.float32))[0].tolist()
    return logits


def test_sixteen_tasks_share_batches_and_each_image_has_its_own_tasks_answer(
    many: Serving, expected: dict[tuple[str, int], list[float]]
) -> None:
    generator = random.Random(0)
    questions = [(generator.choice(NAMES), generator.randrange(len(IMAGES))) for _ in range(400)]

    def ask(question: tuple[str, int]) -> httpx.Response:
        return many.classify(IMAGES[question[1]], question[0], outputs="logits", top_k=1)

    batches, tasks = many.metric("batch_tasks_count"), many.metric("batch_tasks_sum")
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(ask, questions))
    for question, answer in zip(questions, answers, strict=True):
        assert answer.status_code == 200, answer.text
        assert answer.json()["task"] == question[0]
        assert answer.json()["logits"][0] == pytest.approx(expected[question], abs=1e-4)
    assert many.metric("batch_tasks_sum") - tasks > many.metric("batch_tasks_count") - batches
    assert many.metric("batch_tasks_bucket", le="8.0") == many.metric("batch_tasks_count")  # never above the cap of 6


def test_several_tasks_answer_one_request(many: Serving, expected: dict[tuple[str, int], list[float]]) -> None:
    names = ["lora", "task-3", "larger", "task-15"]
    decoded = many.metric("decode_duration_seconds_count")
    files = [("image", ("x.png", image)) for image in IMAGES[:3]]
    query = {"tasks": "lora,task-3,larger,task-15", "outputs": "logits", "top_k": "2"}
    answer = many.client.post("/v1/classify", params=query, files=files)
    assert answer.status_code == 200, answer.text
    results = answer.json()["results"]
    assert [result["task"] for result in results] == names
    for name, result in zip(names, results, strict=True):
        for i in range(3):
            assert result["logits"][i] == pytest.approx(expected[name, i], abs=1e-4)
        assert [len(best) for best in result["predictions"]] == [2, 2, 2]
    assert results[0]["tokens"] == {"in": 17, "out": 9}
    assert results[2]["tokens"] == {"in": 17, "out": 17}
    assert many.metric("decode_duration_seconds_count") == decoded + 1
    repeated = many.client.post(
        "/v1/classify", params={"tasks": ["lora", "task-3"]}, content=IMAGES[0], headers={"content-type": "image/png"}
    )
    assert [result["task"] for result in repeated.json()["results"]] == ["lora", "task-3"]


@pytest.mark.parametrize(
    ("query", "status", "message"),
    [
        ("", 422, "query.tasks"),
        ("tasks=lora,lora", 422, "a task is named twice"),
        ("tasks=lora,nothing", 404, "there is no task 'nothing'"),
        ("tasks=,", 422, "no task is named"),
        ("tasks=lora,%20lora", 422, "a task is named twice"),
        ("tasks=lora,task-0&top_k=3", 422, "the task task-0 has 2 labels"),
        ("tasks=" + ",".join(NAMES), 413, "4 images for 18 tasks; the limit for their product is 64"),
    ],
)
def test_a_wrong_list_of_tasks_is_refused(many: Serving, query: str, status: int, message: str) -> None:
    files = [("image", ("x.png", image)) for image in IMAGES[:4]]
    answer = many.client.post(f"/v1/classify?{query}", files=files)
    assert (answer.status_code, message in answer.json()["error"]) == (status, True), answer.text


def test_such_a_request_is_counted_for_each_of_its_tasks(many: Serving) -> None:
    before = [many.metric("requests_total", task=name, code="200") for name in ("lora", "task-1")]
    answer = many.client.post(
        "/v1/classify?tasks=lora,task-1", content=IMAGES[0], headers={"content-type": "image/png"}
    )
    assert answer.status_code == 200
    after = [many.metric("requests_total", task=name, code="200") for name in ("lora", "task-1")]
    assert after == [count + 1 for count in before]
