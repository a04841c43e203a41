"""What the client is told of the service, its tasks and its savings has the fields that it says."""

from __future__ import annotations

import dataclasses

import pytest
from asking import IMAGES, url
from peer import Answer, peer
from serving import Serving

from fpet.client import (
    Client,
    ImageError,
    RefusedImageError,
    ServiceError,
    UnreachableError,
)


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


def test_an_explanation_is_a_picture_too(client: Client, service: Serving) -> None:
    plain = service.client.post("/v1/tasks/digits/explain", files={"image": IMAGES[0]})
    assert client.explain_png(IMAGES[0], "digits") == plain.content
    assert plain.content.startswith(b"\x89PNG")
    with pytest.raises(RefusedImageError, match="image 0: the bytes are not an image"):
        client.explain_png(b"no picture", "digits")
    with pytest.raises(ImageError, match="cannot be read"):
        client.explain_png("missing.png", "digits")
    wrong = pytest.raises(ServiceError, match="is not one of this service: its type is text/html, not image/png")
    with peer([Answer(200, "", {"content-type": "text/html"})]) as there, Client(there.url) as other, wrong:
        other.explain_png(IMAGES[0], "digits")


def test_where_nobody_listens(service: Serving) -> None:
    with Client("http://bob:secret@127.0.0.1:1", retries=1) as client:
        with pytest.raises(UnreachableError, match=r"^GET /v1/tasks: no answer from http://127\.0\.0\.1:1: ") as error:
            client.tasks()
        assert not error.value.received
        assert not client.ready()
    with Client(url(service)) as client:
        assert client.ready()
