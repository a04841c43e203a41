"""A reduction whose images decide how many tokens they keep: the service tells how many those were."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pictures
import pytest
import torch
from serving import ADMIN, KEY, Files, Serving, serving, small_settings
from small import perturb, small_backbone, small_header

from fpet.header import Method
from fpet.task import new_model, save_task

IMAGES = [pictures.png(seed) for seed in range(8)]
# One rides with others, the other has weights of its own.
TASKS = {"learned": Method("adaptformer", {"dim": 4}), "folded": Method("repadapter", {"dim": 4})}


@pytest.fixture(scope="module")
def service(small_files: Files, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    folder, backbone = tmp_path_factory.mktemp("tasks"), small_backbone()
    for name, adapter in TASKS.items():
        header = dataclasses.replace(small_header(backbone, adapter, Method("ltmp", {"target": 0.5})), name=name)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
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


@pytest.mark.parametrize("task", TASKS)
def test_tokens_that_images_kept_are_told_and_counted(service: Serving, task: str) -> None:
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


def test_what_it_saves_is_unknown_until_a_shadow_tells(service: Serving) -> None:
    ask(service, "learned", IMAGES)
    service.until(lambda: bool(savings_of(service, "learned")["shadow"]))
    savings = savings_of(service, "learned")
    assert savings["shadow"]["speedup"] > 0
    assert (savings["baseline_seconds"], savings.get("speedup")) == (0, None)
