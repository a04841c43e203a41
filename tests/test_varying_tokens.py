"""A reduction whose images decide how many tokens they keep: the service tells how many those were."""

from __future__ import annotations

import base64
import dataclasses
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pictures
import pytest
import torch
from inference_requests import BASE64, BYTES
from serving import ADMIN, KEY, Files, Serving, serving, small_settings
from small import ADAPTFORMER, perturb, small_backbone, small_header

from fpet.cli import main
from fpet.header import Method
from fpet.task import new_model, save_task

IMAGES = [pictures.png(seed) for seed in range(8)]
# Two ride with each other, and one has weights of its own.
TASKS = {"learned": ADAPTFORMER, "folded": Method("repadapter", {"dim": 4}), "other": ADAPTFORMER}


@pytest.fixture(scope="module")
def service(small_files: Files, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    folder, backbone = tmp_path_factory.mktemp("tasks"), small_backbone()
    for seed, (name, adapter) in enumerate(TASKS.items()):
        header = dataclasses.replace(small_header(backbone, adapter, Method("ltmp", {"target": 0.5})), name=name)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = new_model(header, backbone)
            perturb(model.trainable(), 0.3)
        for block in model.reducer.blocks:
            torch.nn.init.constant_(block.merge_threshold, 0.9)
            torch.nn.init.constant_(block.prune_threshold, 0.7)
        save_task(folder / f"{name}.safetensors", header, model)
    settings = small_settings(Files(small_files.backbone, folder), shadow_share=1.0, admin_key=KEY)
    with serving(settings) as service:
        yield service


def savings_of(service: Serving, task: str) -> dict[str, Any]:
    (savings,) = [one for one in service.client.get("/v1/savings").json()["tasks"] if one["task"] == task]
    return savings


def ask(service: Serving, task: str, images: list[bytes], **query: object) -> dict[str, Any]:
    answer = service.client.post(
        f"/v1/tasks/{task}/classify", params=query, files=[("image", image) for image in images]
    )
    assert answer.status_code == 200
    return answer.json()


def logged(caplog: pytest.LogCaptureFixture) -> list[int]:
    """Tokens that were left of all images, as the log tells it of requests with so many."""
    fields = [getattr(record, "fields", {}) for record in caplog.records]
    return [one["tokens_out"] for one in fields if one.get("images") == len(IMAGES)]


@pytest.mark.parametrize("task", ["learned", "folded"])
def test_tokens_that_images_kept_are_told_and_counted(
    service: Serving, task: str, caplog: pytest.LogCaptureFixture
) -> None:
    if task == "folded":
        pinned = service.client.post(f"/v1/tasks/{task}/pin", headers=ADMIN)
        assert pinned.json()["path"] == "folded"
    before = savings_of(service, task)["tokens_out"]
    alone = [ask(service, task, [image])["tokens"]["out"] for image in IMAGES]
    assert len(set(alone)) > 2
    assert savings_of(service, task)["tokens_out"] - before == sum(alone)
    assert ask(service, task, IMAGES)["tokens"] == {"in": 17, "out": max(alone)}
    assert savings_of(service, task)["tokens_out"] - before == 2 * sum(alone)
    assert ask(service, task, IMAGES[:1], tokens="full")["tokens"] == {"in": 17, "out": 17}
    with caplog.at_level(logging.INFO, "service.requests"):
        ask(service, task, IMAGES)
        service.until(lambda: bool(logged(caplog)))
    assert logged(caplog) == [sum(alone)]
    encoded = {"data": [base64.b64encode(IMAGES[0]).decode()], "parameters": BASE64}
    answer = service.client.post(f"/v2/models/{task}/infer", json={"inputs": [{**BYTES, **encoded}]})
    assert answer.headers["x-tokens-out"] == str(alone[0])
    explained = service.client.post(
        f"/v1/tasks/{task}/explain?format=json", content=IMAGES[0], headers={"content-type": "image/png"}
    )
    assert explained.json()["tokens"] == {"in": 17, "out": alone[0]}


def test_what_it_saves_is_unknown_until_a_shadow_tells(service: Serving) -> None:
    ask(service, "learned", IMAGES)
    service.until(lambda: bool(savings_of(service, "learned")["shadow"]))
    savings = savings_of(service, "learned")
    assert savings["shadow"]["speedup"] > 0
    assert (savings["baseline_seconds"], savings.get("speedup")) == (0, None)
    assert all(not one["points"] for one in service.client.get("/v1/savings").json()["calibration"])


def test_tasks_in_a_batch_have_their_own_tokens(service: Serving) -> None:
    alone = {task: ask(service, task, IMAGES[:1])["tokens"]["out"] for task in ("learned", "other")}
    assert len(set(alone.values())) > 1
    batches = service.metric("batch_tasks_sum")
    answer = service.client.post("/v1/classify?tasks=other,learned", files=[("image", IMAGES[0])])
    assert {one["task"]: one["tokens"]["out"] for one in answer.json()["results"]} == alone
    assert service.metric("batch_tasks_sum") == batches + 2


def test_the_command_line_tells_each_images_own(
    service: Serving, small_files: Files, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for i, image in enumerate(IMAGES):
        (tmp_path / f"{i}.png").write_bytes(image)
    files = [str(path) for path in sorted(tmp_path.iterdir())]
    task = service.runtime.catalog.folder / "learned.safetensors"
    assert main(["classify", *files, "--task", str(task), "--backbone", str(small_files.backbone), "--json"]) == 0
    told = [json.loads(line)["tokens"]["out"] for line in capsys.readouterr().out.splitlines()]
    assert told == [ask(service, "learned", [image])["tokens"]["out"] for image in IMAGES]
