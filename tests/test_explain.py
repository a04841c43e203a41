"""What merged, over real HTTP."""

from __future__ import annotations

import dataclasses
import io
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pictures
import pytest
import torch
from PIL import Image
from serving import Files, Serving, serving, small_settings, write_task
from small import PUBLISHED_ODD, small_backbone, small_header

from fpet.backbone import create_backbone, save_backbone
from fpet.groups import token_of_patch
from fpet.preprocess import Preprocessing
from fpet.task import Task
from service.decode import decode_image
from service.explanations import MOST

IMAGES = [pictures.png(seed) for seed in range(8)]


def explain(service: Serving, image: bytes, task: str = "digits", **query: str) -> tuple[int, bytes]:
    answer = service.client.post(
        f"/v1/tasks/{task}/explain", params=query, content=image, headers={"content-type": "image/png"}
    )
    return answer.status_code, answer.content


def groups_of(service: Serving, image: bytes, task: str = "digits") -> list[list[int]]:
    answer = service.client.post(
        f"/v1/tasks/{task}/explain?format=json", content=image, headers={"content-type": "image/png"}
    )
    assert answer.status_code == 200, answer.text
    places: list[list[int]] = answer.json()["groups"]
    return places


def test_the_groups_are_those_of_the_task_whatever_else_runs(service: Serving, small_files: Files) -> None:
    task = Task.load(small_files.tasks / "digits.safetensors")
    model, preprocessing = task.build(small_backbone()), task.header.preprocessing
    expected = []
    for data in IMAGES:
        image = preprocessing.resize(decode_image(data, ("png",), 10_000))
        expected.append(token_of_patch(model, preprocessing.normalize(image[None], torch.float32))[0].tolist())
    with ThreadPoolExecutor(8) as pool:
        asking = [pool.submit(service.classify, image) for image in IMAGES * 4]
        found = list(pool.map(lambda image: groups_of(service, image), IMAGES))
    assert found == expected
    assert all(one.result().status_code == 200 for one in asking)
    assert len({str(places) for places in expected}) > 1
    assert {len({place for row in places for place in row}) for places in expected} == {8}  # and the class token: 9


def test_a_task_that_keeps_its_tokens_has_a_group_a_patch(service: Serving) -> None:
    places = groups_of(service, IMAGES[0], "plain")
    assert sorted(place for row in places for place in row) == list(range(1, 17))


def test_the_picture_has_a_colour_a_group(service: Serving) -> None:
    status, png = explain(service, IMAGES[0])
    assert status == 200
    picture = np.asarray(Image.open(io.BytesIO(png)))
    assert picture.shape == (448, 448, 3)
    colours = {tuple(picture[112 * row + 50, 112 * column + 50]) for row in range(4) for column in range(4)}
    assert 1 < len(colours) <= 8


def test_an_image_may_end_beside_the_last_patch(tmp_path: Path) -> None:
    odd = create_backbone(PUBLISHED_ODD, {"embed_dim": 24, "depth": 2, "num_heads": 3})
    files = Files(tmp_path / "backbone.safetensors", tmp_path / "tasks")
    save_backbone(files.backbone, odd)
    write_task(
        files.tasks / "digits.safetensors",
        dataclasses.replace(small_header(odd), preprocessing=Preprocessing(size=(384, 384))),
        odd,
    )
    with serving(small_settings(files)) as running:
        status, png = explain(running, IMAGES[0])
    assert status == 200
    with Image.open(io.BytesIO(png)) as picture:
        assert picture.size == (756, 756)


@pytest.mark.parametrize(
    ("image", "task", "query", "status"),
    [
        (b"no image", "digits", {}, 400),
        (IMAGES[0], "nothing", {}, 404),
        (IMAGES[0], "digits", {"format": "svg"}, 422),
    ],
)
def test_wrong_requests_are_refused(
    service: Serving, image: bytes, task: str, query: dict[str, str], status: int
) -> None:
    assert explain(service, image, task, **query)[0] == status


def test_one_image_is_explained_at_a_time(service: Serving) -> None:
    files = [("image", ("x.png", image)) for image in IMAGES[:2]]
    answer = service.client.post("/v1/tasks/digits/explain", files=files)
    assert (answer.status_code, "2 images" in answer.json()["error"]) == (422, True)


def test_what_is_refused_leaves_its_place_to_others(service: Serving) -> None:
    assert [explain(service, b"no image")[0] for _ in range(MOST)] == [400] * MOST
    assert explain(service, IMAGES[0])[0] == 200
