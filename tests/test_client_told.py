"""What the client is told of the service, its tasks and its savings has the fields that it says."""

from __future__ import annotations

import dataclasses

import pytest
from asking import IMAGES, url
from serving import Serving

from fpet.client import (
    Client,
    RefusedImageError,
    UnreachableError,
)
from fpet.errors import ImageError


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


def test_where_nobody_listens(service: Serving) -> None:
    with Client("http://bob:secret@127.0.0.1:1", retries=1) as client:
        with pytest.raises(UnreachableError, match=r"^GET /v1/tasks: no answer from http://127\.0\.0\.1:1: ") as error:
            client.tasks()
        assert not error.value.received
        assert not client.ready()
    with Client(url(service)) as client:
        assert client.ready()
